//! Deliberate faults, so that the tests can be tested: a check that cannot fail is a defect.
//!
//! At the place of a law the code asks [`mutant!`](crate::mutant!) whether it is to break that law in this one way. A test
//! switches one fault on and names the law that must report it. There is no such switch in a release build: the question is
//! the constant false there, and the compiler drops the branch.
//!
//! Names are `law-what-is-wrong`, in kebab case: `l2-ranks-together`. A name stands at one place of the code only, within
//! `mutant!("...")`, so that a test can list them from the source.

#[cfg(debug_assertions)]
mod switch {
    use std::cell::Cell;
    use std::sync::OnceLock;

    thread_local! {
        static HERE: Cell<Option<&'static str>> = const { Cell::new(None) };
    }
    static EVERYWHERE: OnceLock<String> = OnceLock::new();

    pub fn is_on(name: &str) -> bool {
        HERE.get() == Some(name) || EVERYWHERE.get().is_some_and(|on| on == name)
    }

    pub fn with<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
        struct Off(Option<&'static str>);
        impl Drop for Off {
            fn drop(&mut self) {
                HERE.set(self.0);
            }
        }
        let _off = Off(HERE.replace(Some(name)));
        run()
    }

    pub fn everywhere(name: &str) -> bool {
        EVERYWHERE.get_or_init(|| name.to_string()) == name
    }
}

/// True where the fault of that name is switched on; always false in a release build. Asked through
/// [`mutant!`](crate::mutant!).
#[cfg(debug_assertions)]
#[inline]
pub fn is_on(name: &str) -> bool {
    switch::is_on(name)
}

/// True where the fault of that name is switched on; always false in a release build. Asked through
/// [`mutant!`](crate::mutant!).
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn is_on(_name: &str) -> bool {
    false
}

/// Runs something with one fault switched on in this thread; it is off again afterwards, also after a panic.
#[cfg(debug_assertions)]
pub fn with<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    switch::with(name, run)
}

/// Switches one fault on for the whole life of this process; the shell does so once, at its start, when it is told to. False
/// when another one is on already.
#[cfg(debug_assertions)]
pub fn everywhere(name: &str) -> bool {
    switch::everywhere(name)
}

/// `mutant!("name")`: true where that deliberate fault is switched on, see [`mod@crate::mutant`].
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutant::is_on($name)
    };
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_on_only_while_it_is_asked_for() {
        assert!(!mutant!("none"));
        assert!(with("none", || mutant!("none")));
        assert!(!with("other", || mutant!("none")));
        let panicked = std::panic::catch_unwind(|| with("none", || panic!("on purpose")));
        assert!(panicked.is_err() && !mutant!("none"));
    }
}
