//! Who a shim obeys: one owner at a time, the newest, and if that one is gone the one before.
//!
//! So a successor of ours that dies before it has taken over leaves the replica with whom it was.
//! Earlier owners are told how the replica ended as well: they may still have requests on it.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::keep::Outputs;
use crate::lines::{self, LineReader, LineWriter};
use crate::targets::process::wire::{Hello, LINE_MAX, Order, Stage, Told};

/// More than ever meet; the oldest is let go beyond it.
const OWNERS_MAX: usize = 4;

/// How long an owner that reads nothing is waited for.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// The owners of one replica, and what every one of them is told first.
#[derive(Debug)]
pub(super) struct Owners {
    /// The last is obeyed.
    owners: Vec<Owner>,
    next_id: u64,
    heard: mpsc::Receiver<(u64, Heard)>,
    tell: mpsc::Sender<(u64, Heard)>,
    readers: JoinSet<()>,
    hello: Option<(Hello, Outputs)>,
}

#[derive(Debug)]
struct Owner {
    id: u64,
    writer: LineWriter,
}

/// What came from an owner.
#[derive(Debug)]
pub(super) enum Heard {
    Order(Order),
    Gone,
}

impl Owners {
    pub(super) fn new() -> Self {
        let (tell, heard) = mpsc::channel(16);
        Self {
            owners: Vec::new(),
            next_id: 0,
            heard,
            tell,
            readers: JoinSet::new(),
            hello: None,
        }
    }

    /// Sets what every owner is told first, from here on.
    pub(super) fn set_hello(&mut self, hello: Hello, outputs: Outputs) {
        self.hello = Some((hello, outputs));
    }

    /// Returns the command's outputs, which somebody has to read while nobody owns us.
    pub(super) fn outputs(&mut self) -> Option<&mut Outputs> {
        self.hello.as_mut().map(|(_, outputs)| outputs)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Obeys this one from here on.
    pub(super) async fn add(&mut self, stream: UnixStream) {
        self.tell_last(&Told::Superseded).await;
        let (reader, writer) = lines::over(stream, LINE_MAX);
        let id = self.next_id;
        self.next_id += 1;
        self.readers.spawn(listen(reader, id, self.tell.clone()));
        if self.owners.len() == OWNERS_MAX {
            self.owners.remove(0);
        }
        self.owners.push(Owner { id, writer });
        self.greet().await;
    }

    /// Waits for something from an owner. A call that is dropped loses nothing.
    pub(super) async fn heard(&mut self) -> (u64, Heard) {
        match self.heard.recv().await {
            Some(heard) => heard,
            // It cannot end, since one end is our own.
            None => std::future::pending().await,
        }
    }

    /// Takes what was heard and returns the order in it, if it is of the owner that is obeyed.
    pub(super) async fn on_heard(&mut self, (id, heard): (u64, Heard)) -> Option<Order> {
        while self.readers.try_join_next().is_some() {}
        let is_obeyed = self.owners.last().is_some_and(|owner| owner.id == id);
        match heard {
            Heard::Order(order) if is_obeyed => {
                self.note(order);
                Some(order)
            }
            Heard::Order(_) => None,
            Heard::Gone => {
                self.owners.retain(|owner| owner.id != id);
                if is_obeyed {
                    self.greet().await;
                }
                None
            }
        }
    }

    /// Tells every owner.
    pub(super) async fn tell_all(&self, told: &Told) {
        for owner in &self.owners {
            send(&owner.writer, told, None).await;
        }
    }

    fn note(&mut self, order: Order) {
        if let Some((hello, _)) = &mut self.hello {
            hello.stage = match order {
                Order::Ready if hello.stage == Stage::Starting => Stage::Ready,
                Order::Ready => hello.stage,
                Order::Terminate | Order::Kill => Stage::Stopping,
            };
        }
    }

    async fn tell_last(&self, told: &Told) {
        if let Some(owner) = self.owners.last() {
            send(&owner.writer, told, None).await;
        }
    }

    async fn greet(&self) {
        if let (Some(owner), Some((hello, outputs))) = (self.owners.last(), &self.hello) {
            send(&owner.writer, &Told::Hello(hello.clone()), Some(outputs)).await;
        }
    }
}

/// An owner that is gone or reads nothing shows when it is listened to, or is gone soon.
async fn send(writer: &LineWriter, told: &Told, outputs: Option<&Outputs>) {
    let line = told.to_string();
    let sending = async {
        match outputs {
            Some(outputs) => {
                writer
                    .send(&line, &outputs.each().map(|one| one.as_fd()))
                    .await
            }
            None => writer.send(&line, &[]).await,
        }
    };
    let _sent: Result<io::Result<()>, _> = timeout(WRITTEN_WITHIN, sending).await;
}

async fn listen(mut reader: LineReader, id: u64, tell: mpsc::Sender<(u64, Heard)>) {
    while let Ok(Some(line)) = reader.next_line().await {
        if let Some(order) = Order::parse(&line)
            && tell.send((id, Heard::Order(order))).await.is_err()
        {
            return;
        }
    }
    // Nobody hears it only when we are ending.
    tell.send((id, Heard::Gone)).await.ok();
}
