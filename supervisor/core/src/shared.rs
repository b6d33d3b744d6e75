//! What several hold and is in memory once.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that all clones share until one is changed: that one then has a copy of its own. A host holds thousands of specs
/// and views, and each in more than one place: the spec as declared and as run, the view as core showed it last and as the
/// shell shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared<T>(Arc<T>);

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Shared(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

/// As the value itself.
impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Shared::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_clone_is_its_own_and_the_others_stay_one() {
        let first = Shared::from(String::from("a"));
        let (second, mut third) = (first.clone(), first.clone());
        third.push('b');
        assert_eq!((first.as_str(), third.as_str()), ("a", "ab"));
        assert!(std::ptr::eq(&*first, &*second));
    }
}
