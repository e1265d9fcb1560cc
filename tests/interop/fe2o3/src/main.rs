//! One connection, one session and two links of fe2o3-amqp, which ask for what resumption takes (2.6.13): termini that
//! last, unsettled state that is durable, rcv-settle-mode second. Each line of standard input is an order, each line of
//! standard output its answer: `done ...` or `failed REASON`. README.md lists the orders.

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::SendError;
use fe2o3_amqp::link::delivery::{Delivery, DeliveryFut};
use fe2o3_amqp::link::receiver::{CreditMode, DetachedReceiver, ResumingReceiver};
use fe2o3_amqp::link::sender::DetachedSender;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::{ReceiverSettleMode, SenderSettleMode};
use fe2o3_amqp::types::messaging::{
    Outcome, Source, Target, TerminusDurability, TerminusExpiryPolicy,
};
use fe2o3_amqp::types::primitives::Symbol;
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use std::error::Error;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

/// What the broker offers, and wants to be asked for.
const RESUME: &str = "acquit:resume";
/// How long an order may take before it has failed.
const PATIENCE: Duration = Duration::from_secs(5);

type Answer = Result<String, Box<dyn Error>>;

#[derive(Default)]
struct Program {
    connection: Option<ConnectionHandle<()>>,
    session: Option<SessionHandle<()>>,
    receiver: Option<Receiver>,
    detached_receiver: Option<DetachedReceiver>,
    delivery: Option<Delivery<String>>,
    sender: Option<Sender>,
    detached_sender: Option<DetachedSender>,
    sent: Option<DeliveryFut<Result<Outcome, SendError>>>,
}

impl Program {
    async fn obey(&mut self, words: &[&str]) -> Answer {
        match words {
            ["connect", port, container] => self.connect(port, container).await,
            ["session"] => self.begin().await,
            ["receiver", name, address, credit] => {
                self.attach_receiver(name, address, credit).await
            }
            ["receive"] => self.receive().await,
            ["accept"] => self.accept().await,
            ["credit", credit] => self.grant(credit).await,
            ["detach", "receiver"] => self.detach_receiver().await,
            ["resume", "receiver"] => self.resume_receiver().await,
            ["sender", name, address] => self.attach_sender(name, address).await,
            ["send", text] => self.send(text).await,
            ["outcome"] => self.outcome().await,
            ["detach", "sender"] => self.detach_sender().await,
            ["resume", "sender"] => self.resume_sender().await,
            _ => Err("no such order".into()),
        }
    }

    async fn connect(&mut self, port: &str, container: &str) -> Answer {
        let url = format!("amqp://127.0.0.1:{port}");
        self.connection = Some(Connection::open(container, url.as_str()).await?);
        self.begin().await
    }

    async fn begin(&mut self) -> Answer {
        let connection = self.connection.as_mut().ok_or("no connection")?;
        self.session = Some(Session::begin(connection).await?);
        Ok(String::new())
    }

    async fn attach_receiver(&mut self, name: &str, address: &str, credit: &str) -> Answer {
        let session = self.session.as_mut().ok_or("no session")?;
        let source = Source::builder()
            .address(address)
            .durable(TerminusDurability::UnsettledState)
            .expiry_policy(TerminusExpiryPolicy::Never)
            .build();
        let receiver = Receiver::builder()
            .name(name)
            .source(source)
            .receiver_settle_mode(ReceiverSettleMode::Second)
            .sender_settle_mode(SenderSettleMode::Unsettled)
            .add_desired_capabilities(Symbol::from(RESUME))
            .credit_mode(CreditMode::Auto(credit.parse()?))
            .attach(session)
            .await?;
        self.receiver = Some(receiver);
        Ok(String::new())
    }

    /// Its tag, its delivery-count, and its text.
    async fn receive(&mut self) -> Answer {
        let receiver = self.receiver.as_mut().ok_or("no receiver")?;
        let delivery = receiver.recv::<String>().await?;
        let tag: String = delivery
            .delivery_tag()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let header = delivery.message().header.as_ref();
        let attempts = header.map_or(0, |header| header.delivery_count);
        let answer = format!("{tag} {attempts} {}", delivery.body());
        self.delivery = Some(delivery);
        Ok(answer)
    }

    async fn accept(&mut self) -> Answer {
        let receiver = self.receiver.as_mut().ok_or("no receiver")?;
        receiver
            .accept(self.delivery.as_ref().ok_or("no delivery")?)
            .await?;
        Ok(String::new())
    }

    async fn grant(&mut self, credit: &str) -> Answer {
        let receiver = self.receiver.as_mut().ok_or("no receiver")?;
        receiver.set_credit(credit.parse()?).await?;
        Ok(String::new())
    }

    /// It can be resumed in either case.
    async fn detach_receiver(&mut self) -> Answer {
        match self.receiver.take().ok_or("no receiver")?.detach().await {
            Ok(detached) => {
                self.detached_receiver = Some(detached);
                Ok(String::new())
            }
            Err((detached, error)) => {
                self.detached_receiver = Some(detached);
                Err(error.into())
            }
        }
    }

    /// On the session that is there: another one after `connect` or `session`.
    async fn resume_receiver(&mut self) -> Answer {
        let session = self.session.as_ref().ok_or("no session")?;
        let detached = self.detached_receiver.take().ok_or("nothing to resume")?;
        let resumed = detached
            .resume_on_session(session)
            .await
            .map_err(|error| format!("{:?}", error.kind))?;
        let kind = match resumed {
            ResumingReceiver::Complete(_) => "complete",
            ResumingReceiver::IncompleteUnsettled(_) => "incomplete",
            ResumingReceiver::Resume(_) => "resume",
        };
        self.receiver = Some(resumed.into_receiver());
        Ok(kind.to_owned())
    }

    async fn attach_sender(&mut self, name: &str, address: &str) -> Answer {
        let session = self.session.as_mut().ok_or("no session")?;
        let target = Target::builder()
            .address(address)
            .durable(TerminusDurability::UnsettledState)
            .expiry_policy(TerminusExpiryPolicy::Never)
            .build();
        let sender = Sender::builder()
            .name(name)
            .target(target)
            .receiver_settle_mode(ReceiverSettleMode::Second)
            .sender_settle_mode(SenderSettleMode::Unsettled)
            .add_desired_capabilities(Symbol::from(RESUME))
            .attach(session)
            .await?;
        self.sender = Some(sender);
        Ok(String::new())
    }

    /// Without waiting for the outcome.
    async fn send(&mut self, text: &str) -> Answer {
        let sender = self.sender.as_mut().ok_or("no sender")?;
        self.sent = Some(sender.send_batchable(text.to_owned()).await?);
        Ok(String::new())
    }

    async fn outcome(&mut self) -> Answer {
        let outcome = self.sent.take().ok_or("nothing was sent")?.await?;
        Ok(if outcome.is_accepted() {
            "accepted"
        } else {
            "other"
        }
        .to_owned())
    }

    async fn detach_sender(&mut self) -> Answer {
        match self.sender.take().ok_or("no sender")?.detach().await {
            Ok(detached) => {
                self.detached_sender = Some(detached);
                Ok(String::new())
            }
            Err((detached, error)) => {
                self.detached_sender = Some(detached);
                Err(error.into())
            }
        }
    }

    async fn resume_sender(&mut self) -> Answer {
        let session = self.session.as_ref().ok_or("no session")?;
        let detached = self.detached_sender.take().ok_or("nothing to resume")?;
        let resumed = detached
            .resume_on_session(session)
            .await
            .map_err(|error| format!("{:?}", error.kind))?;
        self.sender = Some(resumed);
        Ok(String::new())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut program = Program::default();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        match timeout(PATIENCE, program.obey(&words)).await {
            Ok(Ok(answer)) => println!("{}", format!("done {answer}").trim_end()),
            Ok(Err(error)) => println!("failed {}", error.to_string().replace('\n', " ")),
            Err(_) => println!("failed nothing came of it"),
        }
    }
    Ok(())
}
