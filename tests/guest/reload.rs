//! `systemctl --user reload`.

use crate::systemd::{property, systemctl};
use crate::unit::{Unit, group, script, steady};

fn pair(second: &str) -> String {
    let b = format!("exec sleep {second}");
    group(&[script("a", "exec sleep 100000", ""), script("b", &b, "needs = [\"a\"]")])
}

#[test]
fn a_reload_restarts_what_was_edited_and_nothing_else() {
    let unit = Unit::started("", &[("pair", pair("100001")), ("steady", steady())]);
    let steady = unit.wait_ready("steady");
    let before = unit.wait_ready("pair");
    let main = unit.main_pid();
    let pid = |status: &socialweb_wire::GroupStatus, name: &str| status.component(name).unwrap().pid;
    unit.write_cluster("pair", &pair("100002"));
    systemctl(&["reload", crate::systemd::UNIT]);
    let after = unit.wait_group("b is another process", "pair", |now| {
        now.phase == socialweb_wire::Phase::Ready && pid(now, "b").is_some() && pid(now, "b") != pid(&before, "b")
    });
    assert_eq!(pid(&after, "a"), pid(&before, "a"), "what was not edited goes on");
    assert_eq!(unit.wait_ready("steady").components[0].pid, steady.components[0].pid);
    crate::systemd::wait_for("the unit is active and no longer reloading", || {
        (property("ActiveState") == "active").then_some(())
    });
    assert_eq!((unit.main_pid(), property("NRestarts")), (main, "0".into()), "the daemon went on too");
    unit.stop();
}
