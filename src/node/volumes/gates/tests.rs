use std::fs;

use crate::node::fsx::Real;
use crate::node::volumes::VolumesRoot;

use super::*;

const UID: &str = "0f8fad5b-d9cb-569f-a165-70867728950e";

#[test]
fn a_closed_gate_opens_and_a_volume_of_that_name_that_is_none_stays() {
    let root = tempfile::tempdir().unwrap();
    let mut volumes = Volumes::new(Real::shared(), VolumesRoot::kubelet(root.path()));
    let volume = root.path().join("pods").join(UID).join("volumes/kubernetes.io~empty-dir").join(GATE);
    volumes.open_gate(UID).unwrap();
    volumes.open_closed_gate(UID).unwrap();
    assert!(!volume.exists(), "there is no such pod");
    fs::create_dir_all(root.path().join("pods").join(UID)).unwrap();
    volumes.open_closed_gate(UID).unwrap();
    assert!(!volume.exists(), "the kubelet has removed its volumes");
    fs::create_dir_all(volume.parent().unwrap()).unwrap();
    volumes.open_gate(UID).unwrap();
    assert!(!volume.exists(), "it may have no gate");
    volumes.open_closed_gate(UID).unwrap();
    assert!(volume.join(GATE_FILE).exists(), "it has a gate whose volume nothing had made");
    volumes.write(UID, [&open_gate()]).unwrap();
    let file = volume.join(GATE_FILE);
    let open = fs::read_to_string(&file).unwrap();
    volumes.close_gate(UID).unwrap();
    assert!(!file.exists());
    volumes.open_gate(UID).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), open);
    // The kubelet may have made the volume anew while it was closed.
    volumes.close_gate(UID).unwrap();
    fs::create_dir_all(&volume).unwrap();
    volumes.open_gate(UID).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), open);

    volumes.close_gate(UID).unwrap();
    fs::create_dir_all(&volume).unwrap();
    fs::write(volume.join("theirs"), "x").unwrap();
    volumes.open_gate(UID).unwrap();
    volumes.open_closed_gate(UID).unwrap();
    let names: Vec<_> = fs::read_dir(&volume).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["theirs"]);
}
