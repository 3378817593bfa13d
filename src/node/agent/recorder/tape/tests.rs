use super::*;

#[test]
fn after_a_large_pass_it_rests_four_times_as_long_and_after_others_not_at_all() {
    let rests = |took: u64| rest(Duration::from_millis(took)).as_millis();
    assert_eq!([0, 1, 200].map(rests), [0, 0, 0]);
    assert_eq!([201, 1_000, 60_000].map(rests), [804, 4_000, 240_000]);
}
