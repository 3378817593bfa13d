use futures::StreamExt;
use futures::TryStreamExt;
use serde_json::json;

use super::*;

fn event(bytes: usize) -> String {
    let object = json!({"metadata": {"resourceVersion": bytes.to_string()}, "data": {"k": "x".repeat(bytes)}});
    format!("{}\n", json!({"type": "MODIFIED", "object": object}))
}

/// A watch that has received `text`, and then stays silent.
fn lines(text: &str, turns: &Turns) -> Lines {
    let pieces: Vec<_> =
        text.as_bytes().chunks(16 << 10).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
    let pieces = futures::stream::iter(pieces).chain(futures::stream::pending());
    Lines::new(Box::pin(pieces).into_async_read(), turns.clone(), None)
}

fn version(next: NextLine) -> String {
    match next {
        NextLine::Event(WatchEvent::Modified(object)) => object.resource_version().to_owned(),
        NextLine::OutOfTurn => "out of turn".to_owned(),
        NextLine::Event(_) | NextLine::Failed(_) | NextLine::End => panic!("neither a change nor out of turn"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_stops_in_the_middle_holds_others_up_for_one_turn_and_small_ones_not_at_all() {
    let turns = Turns::new();
    let (large, half) = (event(1 << 20), event(1 << 20)[..200 << 10].to_owned());
    let mut stuck: Vec<Lines> = (0..AT_ONCE).map(|_| lines(&half, &turns)).collect();
    for stuck in &mut stuck {
        assert!(timeout(Duration::from_millis(1), stuck.next()).await.is_err());
    }
    assert_eq!(version(lines(&event(1), &turns).next().await), "1");
    assert_eq!(version(lines(&large, &turns).next().await), "out of turn");
    let began = tokio::time::Instant::now();
    let turn = turns.wait().await;
    assert!(began.elapsed() <= TURN, "{:?}", began.elapsed());
    let mut first = Lines { turn, ..lines(&format!("{large}{large}"), &turns) };
    assert_eq!(version(first.next().await), (1 << 20).to_string());
    assert!(first.turn.is_none(), "one turn is for one line");
}

#[tokio::test(start_paused = true)]
async fn what_is_read_or_given_up_ends_its_turn_at_once() {
    let turns = Turns::new();
    let large = event(1 << 20);
    for _ in 0..3 * AT_ONCE {
        assert_eq!(version(lines(&large, &turns).next().await), (1 << 20).to_string());
        // The task that holds the turn has to be polled.
        tokio::task::yield_now().await;
    }
    for _ in 0..3 * AT_ONCE {
        let mut given_up = lines(&large[..200 << 10], &turns);
        assert!(timeout(Duration::from_millis(1), given_up.next()).await.is_err());
        assert!(given_up.turn.is_some());
        drop(given_up);
        tokio::task::yield_now().await;
    }
}
