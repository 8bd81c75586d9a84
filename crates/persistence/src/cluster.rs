//! Several processes of one service over one database: who is there, and who leads.
//!
//! One of them leads: it alone schedules and writes the journal. It holds a lease, which it renews long before it ends;
//! when it does not, another one takes it and with it the next epoch. From then on the journal takes nothing of the one
//! before. Only the database's clock counts, so the nodes' clocks may differ. Calls block, for 8 seconds at most: make
//! them on a thread for blocking work.

use crate::postgres::schema;
use crate::postgres::session::{Open, Purpose, Sessions};
use crate::postgres::{Database, DatabaseError};
use penstock_model::{Epoch, NodeId};
use std::time::Duration;

/// What a node tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name.
    pub id: NodeId,
    /// `host:port` where other nodes reach it.
    pub address: String,
    /// SHA-256 of the certificate (DER) that it shows there.
    pub certificate_sha256: [u8; 32],
    /// Its version, for operators.
    pub version: String,
    /// The newest schema of the database that it knows.
    pub schema: u32,
    /// How many attempts it takes at once.
    pub agents_max: u32,
}

/// A node as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenNode {
    /// What it told.
    pub node: NodeRow,
    /// How long ago.
    pub age: Duration,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// The one that asked, from now on for the term that it asked for.
    Leading(Epoch),
    /// Somebody else.
    Following {
        /// Who; `None` when nobody has ever led.
        leader: Option<NodeId>,
        /// Since which epoch.
        epoch: Epoch,
        /// Until the lease ends, unless it is renewed. Zero when it has ended but the leader's last transaction has
        /// not: ask again.
        remaining: Duration,
    },
}

/// The nodes of one service.
#[derive(Debug)]
pub struct Cluster {
    sessions: Sessions,
}

impl Cluster {
    /// Connects, and brings the tables to the newest schema.
    pub fn open(database: &Database) -> Result<Cluster, DatabaseError> {
        Sessions::start(database, Purpose::Write, 1)?.run(schema::migrate)?;
        Ok(Cluster {
            sessions: Sessions::start(database, Purpose::Cluster, 2)?,
        })
    }

    /// Tells that a node is there. To be told again all the time; what it tells takes the place of what was told.
    pub fn register(&self, node: &NodeRow) -> Result<(), DatabaseError> {
        let node = node.clone();
        self.sessions.ask(move |session| {
            let mut open = session.begin()?;
            open.execute(
                "INSERT INTO node (node, address, certificate_sha256, version, schema, agents_max, seen_at)
                 VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp())
                 ON CONFLICT (node) DO UPDATE SET address = excluded.address, version = excluded.version,
                 certificate_sha256 = excluded.certificate_sha256, schema = excluded.schema,
                 agents_max = excluded.agents_max, seen_at = excluded.seen_at",
                &[
                    &node.id.as_str(),
                    &node.address,
                    &node.certificate_sha256.as_slice(),
                    &node.version,
                    &(node.schema as i32),
                    &i32::try_from(node.agents_max).unwrap_or(i32::MAX),
                ],
            )?;
            open.commit()
        })
    }

    /// Forgets a node that will not come back. False when it was not known.
    pub fn forget(&self, node: &NodeId) -> Result<bool, DatabaseError> {
        let node = node.clone();
        self.sessions.ask(move |session| {
            let mut open = session.begin()?;
            let gone = open.execute("DELETE FROM node WHERE node = $1", &[&node.as_str()])?;
            open.commit()?;
            Ok(gone > 0)
        })
    }

    /// All nodes that were registered and not forgotten, by name.
    pub fn nodes(&self) -> Result<Vec<SeenNode>, DatabaseError> {
        let sql = "SELECT node, address, certificate_sha256, version, schema, agents_max,
                   extract(epoch FROM clock_timestamp() - seen_at)::float8 FROM node ORDER BY node";
        self.sessions.ask(move |session| {
            let mut open = session.begin()?;
            let rows = open.query(sql, &[])?;
            open.commit()?;
            // What is no node's name or no digest was not written by a node.
            let seen = rows.iter().filter_map(|row| {
                Some(SeenNode {
                    node: NodeRow {
                        id: NodeId::parse(row.get(0)).ok()?,
                        address: row.get(1),
                        certificate_sha256: row.get::<_, &[u8]>(2).try_into().ok()?,
                        version: row.get(3),
                        schema: row.get::<_, i32>(4) as u32,
                        agents_max: row.get::<_, i32>(5) as u32,
                    },
                    age: seconds(row.get(6)),
                })
            });
            Ok(seen.collect())
        })
    }

    /// Takes the lease for a term, if nobody holds it, or this node itself does (an earlier process of it): then with
    /// the next epoch. Otherwise says who leads. Waits for the last transaction of the leader before, for a second.
    pub fn try_lead(&self, node: &NodeId, term: Duration) -> Result<Leadership, DatabaseError> {
        let node = node.clone();
        self.sessions.run(move |session| {
            let mut open = session.begin()?;
            // Followers look often, and must not stand in the leader's way.
            let seen = lease(&mut open, "")?;
            if !seen.is_free_for(&node) {
                open.commit()?;
                return Ok(seen.followed());
            }
            let held = match lease(&mut open, "FOR UPDATE") {
                Err(DatabaseError::Busy { .. }) => return Ok(seen.followed()),
                held => held?,
            };
            if !held.is_free_for(&node) {
                open.commit()?;
                return Ok(held.followed());
            }
            let epoch = held.epoch + 1;
            open.execute(
                "UPDATE lease SET epoch = $1, leader = $2,
                 expires_at = clock_timestamp() + make_interval(secs => $3) WHERE lease = 'transfer'",
                &[&epoch, &node.as_str(), &term.as_secs_f64()],
            )?;
            open.commit()?;
            Ok(Leadership::Leading(Epoch(epoch as u64)))
        })
    }

    /// Holds the lease for another term from now on. False when somebody else has taken it: nothing of this epoch
    /// counts any more.
    pub fn renew(&self, epoch: Epoch, term: Duration) -> Result<bool, DatabaseError> {
        self.sessions.ask(move |session| {
            let mut open = session.begin()?;
            let held = open.execute(
                "UPDATE lease SET expires_at = clock_timestamp() + make_interval(secs => $2)
                 WHERE lease = 'transfer' AND epoch = $1",
                &[&(epoch.0 as i64), &term.as_secs_f64()],
            )?;
            open.commit()?;
            Ok(held > 0)
        })
    }

    /// Gives the lease back, so that another node need not wait until it ends. The journal must not be written with
    /// this epoch any more. Nothing happens when somebody else has it already.
    pub fn resign(&self, epoch: Epoch) -> Result<(), DatabaseError> {
        self.sessions.ask(move |session| {
            let mut open = session.begin()?;
            open.execute(
                "UPDATE lease SET expires_at = '-infinity' WHERE lease = 'transfer' AND epoch = $1",
                &[&(epoch.0 as i64)],
            )?;
            open.commit()
        })
    }

    /// Who leads or has led last; `None` before the first.
    pub fn leader(&self) -> Result<Option<(NodeId, Epoch, Duration)>, DatabaseError> {
        self.sessions.ask(move |session| {
            let mut open = session.begin()?;
            let lease = lease(&mut open, "")?;
            open.commit()?;
            let Ok(leader) = NodeId::parse(&lease.leader) else {
                return Ok(None);
            };
            Ok(Some((leader, Epoch(lease.epoch as u64), lease.remaining)))
        })
    }
}

struct Lease {
    epoch: i64,
    leader: String,
    remaining: Duration,
}

impl Lease {
    fn is_free_for(&self, node: &NodeId) -> bool {
        self.remaining.is_zero() || self.leader == node.as_str()
    }

    fn followed(self) -> Leadership {
        Leadership::Following {
            leader: NodeId::parse(&self.leader).ok(),
            epoch: Epoch(self.epoch as u64),
            remaining: self.remaining,
        }
    }
}

fn lease(open: &mut Open<'_>, locking: &str) -> Result<Lease, DatabaseError> {
    let sql = format!(
        "SELECT epoch, leader, CASE WHEN expires_at > clock_timestamp()
         THEN extract(epoch FROM expires_at - clock_timestamp())::float8 ELSE 0 END
         FROM lease WHERE lease = 'transfer' {locking}"
    );
    let row = open.query_opt(&sql, &[])?;
    let row = row.ok_or_else(|| DatabaseError::Refused {
        database: open.database().clone(),
        why: "the row of the table lease is missing; restore it from a backup".to_owned(),
    })?;
    Ok(Lease {
        epoch: row.get(0),
        leader: row.get(1),
        remaining: seconds(row.get(2)),
    })
}

/// Negative when the clock was set back: that is no age.
fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::lab;

    const TERM: Duration = Duration::from_secs(60);

    fn node(name: &str) -> NodeId {
        NodeId::parse(name).expect("a name")
    }

    #[test]
    fn one_leads_until_it_resigns_and_each_leader_has_a_higher_epoch() {
        let cluster = Cluster::open(&lab::database()).expect("opens");
        let ask = |name: &str, term| cluster.try_lead(&node(name), term).expect("answers");
        assert_eq!(cluster.leader().expect("answers"), None);
        assert_eq!(ask("a", TERM), Leadership::Leading(Epoch(1)));
        let Leadership::Following {
            leader,
            epoch,
            remaining,
        } = ask("b", TERM)
        else {
            panic!("a leads");
        };
        assert_eq!((leader, epoch), (Some(node("a")), Epoch(1)));
        assert!(remaining > TERM / 2 && remaining <= TERM, "{remaining:?}");
        assert!(cluster.renew(Epoch(1), TERM).expect("answers"));
        assert_eq!(
            ask("a", TERM),
            Leadership::Leading(Epoch(2)),
            "a new process of it"
        );
        assert!(
            !cluster.renew(Epoch(1), TERM).expect("answers"),
            "the old process"
        );
        cluster.resign(Epoch(1)).expect("answers");
        assert!(
            matches!(ask("b", TERM), Leadership::Following { .. }),
            "it was not its own"
        );
        cluster.resign(Epoch(2)).expect("answers");
        assert_eq!(ask("b", TERM), Leadership::Leading(Epoch(3)));
        let (leader, epoch, _) = cluster.leader().expect("answers").expect("somebody");
        assert_eq!((leader, epoch), (node("b"), Epoch(3)));
    }

    #[test]
    fn a_lease_that_is_not_renewed_goes_to_one_of_those_who_ask() {
        let database = lab::database();
        let cluster = Cluster::open(&database).expect("opens");
        let term = Duration::from_millis(200);
        cluster.try_lead(&node("a"), term).expect("answers");
        let leads = |name: String| {
            let cluster = Cluster::open(&database).expect("opens");
            let begun = std::time::Instant::now();
            loop {
                match cluster.try_lead(&node(&name), TERM).expect("answers") {
                    Leadership::Leading(epoch) => return Some(epoch),
                    Leadership::Following {
                        epoch: Epoch(2), ..
                    } => return None,
                    Leadership::Following { remaining, .. } => std::thread::sleep(remaining),
                }
                assert!(begun.elapsed() < Duration::from_secs(30), "nobody leads");
            }
        };
        let leaders: Vec<Epoch> = std::thread::scope(|scope| {
            let asking = (0..4).map(|number| scope.spawn(move || leads(format!("b{number}"))));
            let asking: Vec<_> = asking.collect();
            asking
                .into_iter()
                .filter_map(|it| it.join().expect("no panic"))
                .collect()
        });
        assert_eq!(leaders, [Epoch(2)]);
    }

    #[test]
    fn nodes_tell_of_themselves_until_they_are_forgotten() {
        let cluster = Cluster::open(&lab::database()).expect("opens");
        let row = |name: &str, agents_max| NodeRow {
            id: node(name),
            address: "[::1]:7000".to_owned(),
            certificate_sha256: [7; 32],
            version: "1.2.3".to_owned(),
            schema: 1,
            agents_max,
        };
        for told in [row("b", 1), row("a", 2), row("b", 3)] {
            cluster.register(&told).expect("answers");
        }
        let seen = cluster.nodes().expect("answers");
        assert!(seen.iter().all(|seen| seen.age < Duration::from_secs(30)));
        let seen: Vec<NodeRow> = seen.into_iter().map(|seen| seen.node).collect();
        assert_eq!(seen, [row("a", 2), row("b", 3)]);
        assert!(cluster.forget(&node("a")).expect("answers"));
        assert!(!cluster.forget(&node("a")).expect("answers"));
    }
}
