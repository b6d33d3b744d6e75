//! The power is cut: leases and records are as they were, and all groups come back.

use crate::reboot::{GROUPS, ONE_AT_A_TIME, assert_one_after_the_other, clusters, ports, read_ports, write_ports};
use crate::unit::{Unit, files, state};
use std::path::PathBuf;

mod first_boot {
    use super::*;
    use crate::systemd::{UNIT, output, systemctl};

    #[test]
    fn three_groups_are_up_and_one_is_restarted_until_the_power_goes() {
        let unit = Unit::installed(ONE_AT_A_TIME, &clusters());
        systemctl(&["enable", "--now", UNIT]);
        let groups = GROUPS.map(|group| unit.wait_ready(group));
        write_ports(&groups);
        // Our own files of the test and the installation are not what is tried here.
        output("sync", &[]);
        for _ in 0..3 {
            assert!(unit.ctl(&["restart", "two"]).status.success());
        }
        unit.keep();
    }
}

mod second_boot {
    use super::*;
    use crate::systemd::wait_for;

    #[test]
    fn no_lease_is_lost_no_record_is_broken_and_all_groups_are_back() {
        let unit = Unit::of_earlier_boot();
        wait_for("the daemon answers", || unit.status());
        let groups = GROUPS.map(|group| unit.wait_ready(group));
        assert_one_after_the_other();
        assert_eq!(ports(&groups), read_ports());
        let aside: Vec<PathBuf> =
            files(&state()).into_iter().filter(|file| file.display().to_string().contains(".corrupt-")).collect();
        assert_eq!(aside, Vec::<PathBuf>::new(), "records that could not be read");
        assert_eq!(unit.status().unwrap().warnings, Vec::<String>::new());
    }
}
