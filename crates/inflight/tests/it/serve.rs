//! The built-in server.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is ended with the test.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    async fn start(arguments: &[&str]) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let process = Command::new(env!("CARGO_BIN_EXE_inflight"))
            .args(["__serve", "--port", &port.to_string()])
            .args(arguments)
            .spawn()
            .unwrap();
        let server = Self { process, port };
        let listening = async {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                .await
                .is_err()
            {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, listening)
            .await
            .expect("a listening server");
        server
    }

    async fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
            .await
            .unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn get(&self, path: &str) -> String {
        read(self.send(&get(path)).await).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}

async fn read(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .expect("an answer")
        .unwrap();
    answer
}

#[tokio::test]
async fn it_counts_how_many_it_executes_at_once_and_tells_violations() {
    let server = Server::start(&["--replica", "7", "--slots", "2"]).await;
    let alone = server.get("/").await;
    assert!(
        alone.contains("\"replica\":7") && alone.contains("\"max_seen\":1"),
        "{alone}"
    );
    assert!(alone.contains("\"violations\":0"), "{alone}");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(server.send(&get("/?work=2s")).await);
    }
    for stream in held {
        assert!(read(stream).await.starts_with("HTTP/1.1 200"));
    }
    let after = server.get("/").await;
    assert!(
        after.contains("\"max_seen\":3") && after.contains("\"violations\":1"),
        "{after}"
    );
    assert!(
        after.contains("\"executing\":1") && after.contains("\"executed\":5"),
        "{after}"
    );
}

#[tokio::test]
async fn a_client_that_leaves_is_no_longer_executed() {
    let server = Server::start(&[]).await;
    drop(server.send(&get("/?work=600s")).await);
    let gone = async {
        while !server.get("/").await.contains("\"executing\":1") {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, gone)
        .await
        .expect("nothing but the question is executed");
}

#[tokio::test]
async fn health_is_answered_without_work_and_uploads_are_read() {
    let server = Server::start(&["--work", "1ms"]).await;
    assert!(server.get("/healthz").await.starts_with("HTTP/1.1 200"));
    let body = "x".repeat(300_000);
    let head = "POST /upload HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 300000";
    let answer = read(server.send(&format!("{head}\r\n\r\n{body}")).await).await;
    assert!(answer.contains("\"executed\":1"), "{answer}");
}

#[tokio::test]
async fn sigterm_lets_the_running_request_end() {
    let mut server = Server::start(&[]).await;
    let running = server.send(&get("/?work=2s")).await;
    while !server.get("/").await.contains("\"executing\":2") {
        sleep(Duration::from_millis(10)).await;
    }
    let pid = i32::try_from(server.process.id()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    assert!(read(running).await.starts_with("HTTP/1.1 200"));
    assert!(server.process.wait().unwrap().success());
}

#[test]
fn bad_usage_is_told_with_code_2() {
    let output = Command::new(env!("CARGO_BIN_EXE_inflight"))
        .args(["__serve", "--port", "1", "--work", "soon"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("'soon' is not like 250ms or 2s"));
}
