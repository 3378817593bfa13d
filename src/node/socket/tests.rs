use std::os::unix::fs::PermissionsExt;

use super::*;

#[tokio::test]
async fn a_request_of_a_client_that_has_gone_is_dropped() {
    let order = b"{\"op\":\"retry\",\"namespace\":\"a\",\"name\":\"b\"}\n";
    let (mut client, agent) = UnixStream::pair().unwrap();
    let (sender, mut receiver) = mpsc::channel::<SocketRequest>(1);
    client.write_all(order).await.unwrap();
    drop(client);
    tokio::time::timeout(LOOK * 20, converse(agent, sender.clone())).await.expect("it ends with its client");
    assert!(receiver.try_recv().is_err(), "it has gone before the agent reads");
    let (mut client, agent) = UnixStream::pair().unwrap();
    client.write_all(order).await.unwrap();
    tokio::spawn(converse(agent, sender.clone()));
    let mut asked = receiver.recv().await.unwrap();
    drop(client);
    tokio::time::timeout(LOOK * 20, asked.reply.closed()).await.expect("it has gone while it waits");
    let (mut client, agent) = UnixStream::pair().unwrap();
    client.write_all(order).await.unwrap();
    client.shutdown().await.unwrap();
    tokio::spawn(converse(agent, sender));
    let asked = receiver.recv().await.unwrap();
    tokio::time::sleep(LOOK * 2).await;
    asked.reply.send(serde_json::json!("done")).expect("it still reads");
    let mut reply = String::new();
    client.read_to_string(&mut reply).await.unwrap();
    assert_eq!(reply, "\"done\"\n");
}

#[test]
fn agents_and_clients_of_other_versions_pass_over_what_they_do_not_know() {
    let request =
        SocketOperation::Approve { namespace: "a".to_owned(), name: "b".to_owned(), revision: Some("r".to_owned()) };
    let line = RequestLine { request: request.clone(), deadline: Some(OrderDeadline(Span::from_secs(7))) };
    let text = serde_json::to_string(&line).unwrap();
    assert_eq!(serde_json::from_str::<SocketOperation>(&text).unwrap(), request, "an agent that knows no deadline");
    let sent: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&sent["op"], &sent["deadline"]), (&serde_json::json!("approve"), &serde_json::json!(7_000)));
    let read: RequestLine = serde_json::from_str(&text).unwrap();
    assert!(read.deadline == line.deadline && read.request == request && read.request.is_order());
    let bare: RequestLine =
        serde_json::from_str("{\"op\":\"approve\",\"namespace\":\"a\",\"name\":\"b\",\"later\":1}").unwrap();
    let any = SocketOperation::Approve { namespace: "a".to_owned(), name: "b".to_owned(), revision: None };
    assert!(bare.request == any && bare.deadline.is_none());
    assert!(OrderDeadline::after(Span::ZERO).is_past() && !OrderDeadline::after(Span::from_mins(1)).is_past());
}

#[tokio::test(start_paused = true)]
async fn an_agent_looks_by_itself_whether_its_socket_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(SOCKET);
    let (sender, _receiver) = mpsc::channel::<SocketRequest>(1);
    let renew = Arc::new(Notify::new());
    tokio::spawn(serve(listen(folder.path()).unwrap(), sender, Arc::clone(&renew)));
    std::fs::remove_file(&path).unwrap();
    renew.notify_one();
    tokio::time::sleep(GONE / 100).await;
    assert!(path.exists(), "it is asked to");
    std::fs::remove_file(&path).unwrap();
    tokio::time::sleep(GONE * 2).await;
    assert!(path.exists());
}

#[tokio::test]
async fn a_request_line_gets_one_reply_line_and_nonsense_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let listener = listen(folder.path()).unwrap();
    let mode = std::fs::metadata(folder.path().join(SOCKET)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (sender, mut receiver) = mpsc::channel::<SocketRequest>(1);
    tokio::spawn(serve(listener, sender, Arc::default()));
    tokio::spawn(async move {
        while let Some(asked) = receiver.recv().await {
            let _ = asked.reply.send(serde_json::to_value(&asked.line).unwrap());
        }
    });
    let mut stream = BufReader::new(UnixStream::connect(folder.path().join(SOCKET)).await.unwrap());
    for (request, reply) in [
        ("{\"op\":\"status\"}\n", "{\"op\":\"status\"}\n"),
        (
            "{\"op\":\"explain\",\"namespace\":\"a\",\"name\":\"b\"}\n",
            "{\"name\":\"b\",\"namespace\":\"a\",\"op\":\"explain\"}\n",
        ),
        ("nonsense\n", ""),
    ] {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if reply.is_empty() {
            assert!(line.starts_with("{\"error\":\"request not understood"), "{line}");
        } else {
            let (got, want): (Value, Value) =
                (serde_json::from_str(&line).unwrap(), serde_json::from_str(reply).unwrap());
            assert_eq!(got, want);
        }
    }
}
