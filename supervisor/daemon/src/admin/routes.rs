//! A path becomes a command; the loop's answer becomes the response.

use super::command::{AdminHandle, Change, Command};
use super::serve::{StreamPlaces, Streams};
use super::{metrics, stream};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Serialize;
use serde::de::DeserializeOwned;
use socialweb_core::{ComponentName, GroupName};
use socialweb_wire::request::MAX_TAIL;
use socialweb_wire::{ApiError, DrillQuery, ErrorCode, FeedQuery, GroupQuery, ReloadQuery};

#[derive(Clone)]
struct Shared {
    handle: AdminHandle,
    places: StreamPlaces,
}

type Names<T> = Result<Path<T>, PathRejection>;

/// An [`ApiError`] as a response.
struct Failure(ApiError);

type Answer<T> = Result<T, Failure>;

/// All routes of the API; a body may have `body` bytes.
pub(super) fn router(handle: AdminHandle, places: StreamPlaces, body: usize) -> Router {
    let v1 = Router::new()
        .route("/status", get(status))
        .route("/watch", get(watch))
        .route("/events", get(events))
        .route("/reload", post(reload))
        .route("/drill", post(drill))
        .route("/shutdown", post(shutdown))
        .route("/groups/{group}/logs", get(logs))
        .route("/groups/{group}/tree", get(tree))
        .route("/groups/{group}/receipts", get(receipts))
        .route("/groups/{group}/{verb}", post(change_group))
        .route("/groups/{group}/components/{component}/restart", post(restart_component));
    Router::new()
        .nest(socialweb_wire::PREFIX, v1)
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::from_fn(move |request, next| take_body(body, request, next)))
        .with_state(Shared { handle, places })
}

// === reading ===

async fn status(State(shared): State<Shared>, uri: Uri) -> Answer<Response> {
    let group = optional_group(query::<GroupQuery>(&uri)?.group)?;
    let status = shared.handle.ask(|reply| Command::Status { group, reply }).await?;
    Ok(json(&status))
}

async fn tree(State(shared): State<Shared>, names: Names<String>) -> Answer<Response> {
    let group = group(names)?;
    let tree = shared.handle.ask(|reply| Command::Tree { group, reply }).await?;
    Ok(json(&tree))
}

async fn receipts(State(shared): State<Shared>, names: Names<String>) -> Answer<Response> {
    let group = group(names)?;
    let receipts = shared.handle.ask(|reply| Command::Receipts { group, reply }).await?;
    Ok(json(&receipts))
}

async fn metrics_text(State(shared): State<Shared>) -> Answer<Response> {
    let status = shared.handle.ask(|reply| Command::Status { group: None, reply }).await?;
    let text = metrics::render(&status, &shared.handle.counters);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

// === following ===

async fn watch(State(shared): State<Shared>, Extension(streams): Extension<Streams>, uri: Uri) -> Answer<Response> {
    let group = optional_group(query::<GroupQuery>(&uri)?.group)?;
    // The first status is asked for here, so that an unknown group is a 404 and not a stream.
    let revision = shared.handle.revision();
    let first = shared.handle.ask(|reply| Command::Status { group: group.clone(), reply }).await?;
    let place = shared.places.take()?;
    streams.mark();
    Ok(stream::watch(shared.handle, group, revision, first, place))
}

async fn logs(
    State(shared): State<Shared>,
    Extension(streams): Extension<Streams>,
    names: Names<String>,
    uri: Uri,
) -> Answer<Response> {
    let group = group(names)?;
    let asked = query::<FeedQuery>(&uri)?;
    let component = asked.component.as_deref().map(component_name).transpose()?;
    let (tail, follow, wanted) = (tail(&asked), asked.follow, component.clone());
    let place = shared.places.take()?;
    let feed = {
        let group = group.clone();
        shared.handle.ask(|reply| Command::Logs { group, component, tail, follow, reply }).await?
    };
    streams.mark();
    let keep = move |line: &socialweb_wire::LogLine| {
        line.group == group.as_str() && wanted.as_ref().is_none_or(|c| c.as_str() == line.component)
    };
    Ok(stream::follow(shared.handle, feed, keep, place))
}

async fn events(State(shared): State<Shared>, Extension(streams): Extension<Streams>, uri: Uri) -> Answer<Response> {
    let asked = query::<FeedQuery>(&uri)?;
    let (tail, follow) = (tail(&asked), asked.follow);
    let group = optional_group(asked.group)?;
    let wanted = group.clone();
    let place = shared.places.take()?;
    let feed = shared.handle.ask(|reply| Command::Events { group, tail, follow, reply }).await?;
    streams.mark();
    let keep = move |line: &socialweb_wire::EventLine| {
        wanted.as_ref().is_none_or(|g| line.group.as_deref() == Some(g.as_str()))
    };
    Ok(stream::follow(shared.handle, feed, keep, place))
}

fn tail(asked: &FeedQuery) -> usize {
    asked.tail.unwrap_or(FeedQuery::DEFAULT_TAIL).min(MAX_TAIL) as usize
}

// === changing ===

async fn change_group(State(shared): State<Shared>, names: Names<(String, String)>, uri: Uri) -> Answer<Response> {
    let Path((name, verb)) = names.map_err(bad_path)?;
    let change = match verb.as_str() {
        "start" => Change::Start,
        "stop" => Change::Stop,
        "restart" => |group| Change::Restart(group, None),
        "delete" => Change::Delete,
        _ => return Err(Failure(unknown_route(&uri))),
    };
    ask_change(&shared.handle, change(group_name(&name)?)).await
}

async fn restart_component(State(shared): State<Shared>, names: Names<(String, String)>) -> Answer<Response> {
    let Path((group, component)) = names.map_err(bad_path)?;
    let change = Change::Restart(group_name(&group)?, Some(component_name(&component)?));
    ask_change(&shared.handle, change).await
}

async fn drill(State(shared): State<Shared>, uri: Uri) -> Answer<Response> {
    let token = query::<DrillQuery>(&uri)?.token;
    if !crate::drill::is_token(&token) {
        let why = "a drill's token has 8 to 32 hex digits";
        return Err(Failure(ApiError::new(ErrorCode::BadRequest, why).with_hint("`ctl drill` makes one")));
    }
    ask_change(&shared.handle, Change::Drill(token)).await
}

async fn shutdown(State(shared): State<Shared>) -> Answer<Response> {
    ask_change(&shared.handle, Change::Shutdown).await
}

async fn ask_change(handle: &AdminHandle, change: Change) -> Answer<Response> {
    let accepted = handle.ask(|reply| Command::Change { change, reply }).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)).into_response())
}

async fn reload(State(shared): State<Shared>, uri: Uri) -> Answer<Response> {
    let ReloadQuery { dry_run, allow_empty } = query(&uri)?;
    let plan = shared.handle.ask(|reply| Command::Reload { dry_run, allow_empty, reply }).await?;
    Ok(json(&plan))
}

// === edges ===

/// Takes the body off the connection before anything else happens, within its bound.
async fn take_body(limit: usize, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match axum::body::to_bytes(body, limit).await {
        Ok(_) => next.run(Request::from_parts(parts, axum::body::Body::empty())).await,
        Err(_) => Failure(
            ApiError::new(ErrorCode::TooLarge, format!("the request's body is broken or has more than {limit} bytes"))
                .with_hint("no route reads a body; send none"),
        )
        .into_response(),
    }
}

async fn no_route(uri: Uri) -> Failure {
    Failure(unknown_route(&uri))
}

fn unknown_route(uri: &Uri) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("there is no {}", uri.path()))
        .with_hint("ctl and daemon may be of different versions")
}

async fn wrong_method(method: axum::http::Method, uri: Uri) -> Failure {
    Failure(
        ApiError::new(ErrorCode::WrongMethod, format!("{} does not answer {method}", uri.path()))
            .with_hint("GET reads, POST changes"),
    )
}

fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Failure> {
    Query::try_from_uri(uri).map(|Query(query)| query).map_err(|rejection| {
        Failure(ApiError::new(ErrorCode::BadRequest, format!("the query is not understood: {}", rejection.body_text())))
    })
}

fn bad_path(rejection: PathRejection) -> Failure {
    Failure(ApiError::new(ErrorCode::BadRequest, format!("the path is not understood: {}", rejection.body_text())))
}

fn group(names: Names<String>) -> Result<GroupName, Failure> {
    names.map_err(bad_path).and_then(|Path(name)| group_name(&name))
}

fn optional_group(name: Option<String>) -> Result<Option<GroupName>, Failure> {
    name.as_deref().map(group_name).transpose()
}

fn group_name(name: &str) -> Result<GroupName, Failure> {
    GroupName::new(name).map_err(|error| Failure(ApiError::new(ErrorCode::BadRequest, error.to_string())))
}

fn component_name(name: &str) -> Result<ComponentName, Failure> {
    ComponentName::new(name).map_err(|error| Failure(ApiError::new(ErrorCode::BadRequest, error.to_string())))
}

fn json<T: Serialize>(value: &T) -> Response {
    Json(value).into_response()
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Failure(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.0)).into_response()
    }
}
