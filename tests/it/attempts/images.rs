//! Images, by pattern and by identifier.

use super::*;

#[test]
fn no_image_gets_past_the_patterns() {
    for mut world in [World::new(), World::trusting()] {
        world.rules.images = vec!["r.test/team/*".to_owned()];
        no_image_gets_past(&world);
    }
}

fn no_image_gets_past(world: &World) {
    let images = [
        "evil.test/team/x:1",
        "r.test.evil.test/team/x:1",
        "r.test/teamx/y:1",
        "r.test/other/x",
        "busybox",
        "team/x:1",
        "evil.test/r.test/team/x:1",
        "R.TEST/team/x:1",
        "r.test:5000/team/x:1",
        "r.test/team/../other/x:1",
        "r.test/team/x:1\nevil.test/x",
        " r.test/team/x:1",
        "http://r.test/team/x:1",
    ];
    let attempts: Vec<(&str, Value, &str)> = images.iter().map(|image| ("~c/image", json!(image), "image")).collect();
    are_refused(world, &attempts);
    are_refused(world, &[("~/volumes/-", volume(json!({"image": {"reference": "evil.test/x:1"}})), "image")]);
}

#[test]
fn no_id_of_an_image_gets_past_the_patterns() {
    let full = "0123456789abcdef".repeat(4);
    let ids = [&format!("sha256:{full}"), &full, "sha256:0123456789ab", "0123456789ab", "sha512:00", "cafe"];
    let words = "a runtime takes it for the ID of any image on the node";
    for patterns in [&["r.test/team/*"][..], &["docker.io/library/*"], &["*:*", "docker.io/*"], &["sha256:*"], &[]] {
        for mut world in [World::new(), World::trusting()] {
            world.rules.images = patterns.iter().map(ToString::to_string).collect();
            for id in ids {
                let init = json!([{
                    "name": "i", "image": id, "resources": {"limits": {"memory": "1Mi"}},
                    "securityContext": {"readOnlyRootFilesystem": true},
                }]);
                are_refused(
                    &world,
                    &[
                        ("~c/image", json!(id), words),
                        ("~/initContainers", init, words),
                        ("~/volumes/-", volume(json!({"image": {"reference": id}})), words),
                    ],
                );
            }
        }
    }
    assert!(matches!(World::new().changed("~c/image", &json!("cafe")), Outcome::Runs(_)), "* allows all");
}
