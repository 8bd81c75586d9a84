//! Several processes of one service over one database: who is there, and who leads.
//!
//! One of them leads: it alone schedules and writes the journal. It holds a lease, which it renews long before it ends;
//! when it does not, another one takes it and with it the next epoch. From then on the journal takes nothing of the one
//! before. Only the database's clock counts, so the nodes' clocks may differ. Calls block, for 8 seconds at most: make
//! them on a thread for blocking work.

use crate::postgres::schema;
use crate::postgres::session::{OpenTransaction, Purpose, Session, Sessions};
use crate::postgres::{Database, DatabaseError};
use crate::sql_integer::to_sql;
use penstock_model::{Epoch, NodeId, Tenure};
use std::time::Duration;

/// No version without the column `term_seconds` took a longer lease.
const TERM_UNKNOWN_SECONDS: u32 = 60;

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

/// The columns `epoch` and `holder`.
pub(crate) fn columns(tenure: &Tenure) -> (i64, i64) {
    (to_sql(tenure.epoch.0), tenure.holder as i64)
}

fn tenure_after(epoch: i64) -> Tenure {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    Tenure {
        epoch: Epoch(epoch as u64 + 1),
        holder: random.max(1),
    }
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// The one that asked, from now on for the term that it asked for.
    Leading(Tenure),
    /// Somebody else.
    Following {
        /// Who; `None` when nobody has ever led.
        leader: Option<NodeId>,
        /// In which turn.
        tenure: Tenure,
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
        let opening = Sessions::start(database, Purpose::Write, 1)?;
        opening.run(schema::migrate)?;
        opening.run(forget_vanished)?;
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
            let tenure = tenure_after(held.epoch);
            let (epoch, holder) = columns(&tenure);
            open.execute(
                "UPDATE lease SET epoch = $1, leader = $2, holder = $4, term_seconds = $3,
                 expires_at = clock_timestamp() + make_interval(secs => $3) WHERE lease = 'transfer'",
                &[&epoch, &node.as_str(), &term.as_secs_f64(), &holder],
            )?;
            open.commit()?;
            Ok(Leadership::Leading(tenure))
        })
    }

    /// Holds the lease for another term from now on. False when somebody else has taken it, or the database does not
    /// know of this turn any more: nothing of it counts then.
    pub fn renew(&self, tenure: Tenure, term: Duration) -> Result<bool, DatabaseError> {
        self.sessions.ask(move |session| {
            let (epoch, holder) = columns(&tenure);
            let mut open = session.begin()?;
            let held = open.execute(
                "UPDATE lease SET term_seconds = $2,
                 expires_at = clock_timestamp() + make_interval(secs => $2)
                 WHERE lease = 'transfer' AND epoch = $1 AND holder = $3",
                &[&epoch, &term.as_secs_f64(), &holder],
            )?;
            open.commit()?;
            Ok(held > 0)
        })
    }

    /// Gives the lease back, so that another node need not wait until it ends. The journal must not be written with
    /// this turn any more. Nothing happens when somebody else has it already.
    pub fn resign(&self, tenure: Tenure) -> Result<(), DatabaseError> {
        self.sessions.ask(move |session| {
            let (epoch, holder) = columns(&tenure);
            let mut open = session.begin()?;
            open.execute(
                "UPDATE lease SET expires_at = '-infinity'
                 WHERE lease = 'transfer' AND epoch = $1 AND holder = $2",
                &[&epoch, &holder],
            )?;
            open.commit()
        })
    }

    /// Who leads or has led last; `None` before the first.
    pub fn leader(&self) -> Result<Option<(NodeId, Tenure, Duration)>, DatabaseError> {
        self.sessions.ask(move |session| {
            let mut open = session.begin()?;
            let lease = lease(&mut open, "")?;
            open.commit()?;
            let Ok(leader) = NodeId::parse(&lease.leader) else {
                return Ok(None);
            };
            Ok(Some((leader, lease.tenure(), lease.remaining)))
        })
    }
}

/// Nodes that have told nothing for so long will not come back; should one, it registers anew.
fn forget_vanished(session: &mut Session) -> Result<(), DatabaseError> {
    let mut open = session.begin()?;
    let sql = "DELETE FROM node WHERE seen_at < clock_timestamp() - interval '90 days'";
    open.execute(sql, &[])?;
    open.commit()
}

struct Lease {
    epoch: i64,
    holder: i64,
    leader: String,
    remaining: Duration,
}

impl Lease {
    fn is_free_for(&self, node: &NodeId) -> bool {
        self.remaining.is_zero() || self.leader == node.as_str()
    }

    fn tenure(&self) -> Tenure {
        Tenure {
            epoch: Epoch(self.epoch as u64),
            holder: self.holder as u64,
        }
    }

    fn followed(self) -> Leadership {
        Leadership::Following {
            leader: NodeId::parse(&self.leader).ok(),
            tenure: self.tenure(),
            remaining: self.remaining,
        }
    }
}

fn lease(open: &mut OpenTransaction<'_>, locking: &str) -> Result<Lease, DatabaseError> {
    // One that ends later than any lease does was given by another server, whose clock was ahead: without this nobody
    // would lead until this clock has caught up.
    let sql = format!(
        "SELECT epoch, leader, CASE WHEN expires_at > clock_timestamp()
         AND expires_at <= clock_timestamp() + make_interval(secs => 2 * coalesce(term_seconds, {TERM_UNKNOWN_SECONDS}))
         THEN extract(epoch FROM expires_at - clock_timestamp())::float8 ELSE 0 END, holder
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
        holder: row.get(3),
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
        let ask = |name: &str| cluster.try_lead(&node(name), TERM).expect("answers");
        assert_eq!(cluster.leader().expect("answers"), None);
        let first = leads(ask("a"));
        assert_eq!(first.epoch, Epoch(1));
        let Leadership::Following {
            leader,
            tenure,
            remaining,
        } = ask("b")
        else {
            panic!("a leads");
        };
        assert_eq!((leader, tenure), (Some(node("a")), first));
        assert!(remaining > TERM / 2 && remaining <= TERM, "{remaining:?}");
        assert!(cluster.renew(first, TERM).expect("answers"));
        let second = leads(ask("a"));
        assert_eq!(second.epoch, Epoch(2), "a new process of it");
        assert!(
            !cluster.renew(first, TERM).expect("answers"),
            "the old process"
        );
        cluster.resign(first).expect("answers");
        assert!(
            matches!(ask("b"), Leadership::Following { .. }),
            "it was not its own"
        );
        cluster.resign(second).expect("answers");
        let third = leads(ask("b"));
        assert_eq!(third.epoch, Epoch(3));
        let (leader, tenure, _) = cluster.leader().expect("answers").expect("somebody");
        assert_eq!((leader, tenure), (node("b"), third));
    }

    fn leads(answer: Leadership) -> Tenure {
        match answer {
            Leadership::Leading(tenure) => tenure,
            Leadership::Following { leader, .. } => panic!("{leader:?} leads"),
        }
    }

    #[test]
    fn a_turn_that_the_database_has_lost_and_given_again_is_not_the_same() {
        let database = lab::database();
        let cluster = Cluster::open(&database).expect("opens");
        let ask = |name: &str| leads(cluster.try_lead(&node(name), TERM).expect("answers"));
        let lost = ask("a");
        lab::execute(
            &database,
            "UPDATE lease SET epoch = 0, expires_at = '-infinity'",
        );
        let given = ask("b");
        assert_eq!(lost.epoch, given.epoch);
        assert!(!given.is_that_of(&lost));
        assert!(!cluster.renew(lost, TERM).expect("answers"));
        cluster.resign(lost).expect("answers");
        assert!(
            cluster.renew(given, TERM).expect("answers"),
            "it still leads"
        );
    }

    #[test]
    fn a_lease_that_ends_later_than_any_was_given_by_another_clock() {
        let database = lab::database();
        let cluster = Cluster::open(&database).expect("opens");
        leads(cluster.try_lead(&node("a"), TERM).expect("answers"));
        let leap = |by: &str| {
            let sql = format!("UPDATE lease SET expires_at = expires_at + interval '{by}'");
            lab::execute(&database, &sql);
            cluster.try_lead(&node("b"), TERM).expect("answers")
        };
        let held = leap("30 seconds");
        assert!(
            matches!(held, Leadership::Following { .. }),
            "clocks differ a little"
        );
        assert_eq!(leads(leap("1 hour")).epoch, Epoch(2));
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
                    Leadership::Leading(tenure) => return Some(tenure.epoch),
                    Leadership::Following { tenure, .. } if tenure.epoch == Epoch(2) => {
                        return None;
                    }
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
        let database = lab::database();
        let cluster = Cluster::open(&database).expect("opens");
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
        lab::execute(
            &database,
            "UPDATE node SET seen_at = seen_at - interval '1 year' WHERE node = 'b'",
        );
        let cluster = Cluster::open(&database).expect("opens");
        assert_eq!(
            cluster.nodes().expect("answers").len(),
            1,
            "one has vanished"
        );
        assert!(cluster.forget(&node("a")).expect("answers"));
        assert!(!cluster.forget(&node("a")).expect("answers"));
    }
}
