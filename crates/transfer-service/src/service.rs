//! A running transfer service: what the command line starts and what the REST interface asks.

mod exposition;
mod journal_meter;

pub use journal_meter::{JournalCounts, JournalMeter};

use crate::agent::{
    ActiveRow, AgentCaches, AgentConfig, AgentSetup, Gfal, GfalConfig, IpVersionClients,
};
use crate::banned::Banned;
use crate::clock::EngineClock;
use crate::error::ServiceError;
use crate::leader_requests::{LeaderClient, LeaderSeat, NoReply};
use crate::ledger_followers::LedgerFollowers;
use crate::loop_message::Message;
use crate::metrics::TransferMetrics;
use crate::node::{AgentHost, Followers, Node, PublishedState};
use crate::nodes::{LeaderLoop, Membership, NODE_TERM, NodeStatus, NodesView};
use crate::overview::{LinkSampling, Overview};
use crate::run;
use crate::store::{self, Deployment, OpenStore, StoreBackend};
use crate::tokens::{TokenClients, TokenKeeper};
use penstock_decide::clock::ClockTrust;
use penstock_decide::health::{DATABASE_SILENCE_MAX, Writability};
use penstock_decide::settings::{SettingRefusal, SettingRequest, SettingRequester};
use penstock_engine::checked_submission::NewJob;
use penstock_engine::command::{
    Cancel, CancelAll, ChangeSetting, EstimateStart, ExplainWaiting, ImposeBan, LiftBan,
    NotAccepted, Reprioritise, Request, Submit, TooManyBans,
};
use penstock_engine::{EngineConfig, StartEstimate, StoppedCount, this_process};
use penstock_journal::JournalReader;
use penstock_model::{
    Access, Ban, BanTarget, CloudKey, JobId, NodeId, Priority, SettingChange, Settings, StorageId,
    TimeSpan, TransferId, UserName, VoName, WaitReason,
};
use penstock_persistence::delegations::Delegations;
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::http1::client::Client;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};

/// How often it is looked at whether the journal can be read.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How often requests and proxies that have ended are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// How long a submission waits before it looks whether the journal can still be written.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(3);

/// How long what only the leader does waits for one.
const LEADER_PATIENCE: Duration = Duration::from_secs(20);

/// Schemes whose storage elements know nothing but proxies.
const NEED_PROXIES: [&str; 2] = ["gsiftp", "srm"];

/// What a transfer service needs to run.
#[derive(Clone)]
pub struct ServiceConfig {
    /// The site's name, shown in the live view.
    pub site: String,
    pub sampling: LinkSampling,
    /// Where it keeps what survives a restart.
    pub store: StoreBackend,
    /// Seal tokens and proxies.
    pub keys: SealingKeys,
    /// Limits and retry rules.
    pub engine: EngineConfig,
    /// How long agents wait for what.
    pub agents: AgentConfig,
    /// How what needs gfal2 is moved. `None`: such transfers are refused.
    pub gfal: Option<GfalConfig>,
    /// The issuers at which it renews tokens.
    pub token_clients: TokenClients,
    /// Learns whom operators ban while the service runs.
    pub banned: Banned,
    /// How long running transfers may go on after the shutdown signal before they are stopped.
    pub drain_grace: Duration,
}

/// How many wait in the queues of a service.
pub(crate) struct QueueLengths {
    pub(crate) inputs: usize,
    pub(crate) batches: usize,
}

/// A running transfer service, or one node of it. Ends, drained, after its shutdown signal.
pub struct Service {
    pub(crate) node: Arc<Node>,
    leader: LeaderClient,
    leader_loop: Arc<LeaderLoop>,
    /// Who follows the record.
    pub(crate) ledger_followers: LedgerFollowers,
    /// Of a service of several nodes.
    membership: OnceLock<Arc<Membership>>,
    reader: Arc<dyn JournalReader>,
    delegations: Arc<Delegations>,
    keys: SealingKeys,
    gfal: Option<Arc<Gfal>>,
    ending: Mutex<Option<tokio::task::JoinHandle<Result<(), ServiceError>>>>,
    /// Held while a job with a given id is looked up and submitted, so that no id is accepted twice.
    pub(crate) given_ids: Mutex<()>,
}

impl Service {
    /// Opens the journal, continues what a former process left, and starts to move files.
    pub async fn start(
        config: ServiceConfig,
        client: Client,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Arc<Service>, ServiceError> {
        let (store, keys) = (config.store.clone(), config.keys.clone());
        let opened = tokio::task::spawn_blocking(move || store::open(&store, &keys)).await;
        let opened = opened.map_err(|why| ServiceError::Thread(why.into()))??;
        let (keys, grace) = (config.keys.clone(), config.drain_grace);
        let OpenStore {
            role,
            reader,
            delegations,
            written_at,
        } = opened;
        let id = match &role {
            Deployment::Alone(_) => None,
            Deployment::Node(nodes) => Some(nodes.node.clone()),
        };
        let service = Service::assemble(config, reader, delegations, client, id)?;
        let (node, leader_loop) = (service.node.clone(), service.leader_loop.clone());
        if let Some(at) = written_at {
            node.agents.tokens.clock().was_written(at);
        }
        match role {
            Deployment::Alone(journal) => {
                let ending = leader_loop.alone(&node, journal, shutdown.clone())?;
                service.begin(ending, shutdown).await;
            }
            Deployment::Node(nodes) => {
                let membership = Membership::new(*nodes, keys, grace);
                // Set once, here.
                let _ = service.membership.set(membership.clone());
                let ending = membership.run(node, leader_loop, shutdown.clone());
                service.begin(ending, shutdown).await;
            }
        }
        Ok(service)
    }

    /// All but what it is to do. `id`: it is one node of several.
    fn assemble(
        config: ServiceConfig,
        reader: Arc<dyn JournalReader>,
        delegations: Arc<Delegations>,
        client: Client,
        id: Option<NodeId>,
    ) -> Result<Arc<Service>, ServiceError> {
        let tokens = TokenKeeper::new(client.clone(), reader.clone(), config.token_clients);
        let gfal = config.gfal.map(Gfal::new).transpose()?.map(Arc::new);
        let published = Arc::new(PublishedState::new(config.banned));
        let agents = Arc::new(AgentSetup {
            by_version: IpVersionClients::of(&client),
            client,
            reader: reader.clone(),
            delegations: delegations.clone(),
            config: config.agents,
            settings: published.follow_settings(),
            memory: Arc::new(AgentCaches::default()),
            tokens: Arc::new(tokens),
            gfal: gfal.clone(),
        });
        let (term, patience) = match id {
            Some(_) => (Some(NODE_TERM), Some(LEADER_PATIENCE)),
            None => (None, None),
        };
        let id = id.unwrap_or_else(this_process);
        let host = AgentHost::start(agents.clone(), term);
        let leader_loop = Arc::new(LeaderLoop::new(config.engine, config.drain_grace));
        let leader = LeaderClient::new(leader_loop.seat(), patience);
        agents.tokens.persist_through(leader.clone());
        let node = Node {
            id: id.clone(),
            site: config.site,
            sampling: config.sampling,
            agents,
            followers: Arc::new(Followers::new(id, host.clone())),
            host,
            published,
            metrics: Arc::new(TransferMetrics::default()),
            clock: EngineClock::start(),
        };
        Ok(Arc::new(Service {
            node: Arc::new(node),
            leader,
            leader_loop,
            ledger_followers: LedgerFollowers::default(),
            membership: OnceLock::new(),
            reader,
            delegations,
            keys: config.keys,
            gfal,
            ending: Mutex::default(),
            given_ids: Mutex::new(()),
        }))
    }

    async fn begin(
        &self,
        ending: impl Future<Output = Result<(), ServiceError>> + Send + 'static,
        shutdown: watch::Receiver<bool>,
    ) {
        *self.ending.lock().await = Some(tokio::spawn(ending));
        tokio::spawn(look_at_journal(
            self.reader.clone(),
            self.node.clone(),
            shutdown.clone(),
        ));
        tokio::spawn(sweep(
            self.node.agents.clone(),
            self.leader_loop.seat(),
            shutdown,
        ));
    }

    /// What is known of the nodes of this service.
    pub fn nodes(&self) -> NodesView {
        let overview = self.overview();
        match self.membership.get() {
            Some(membership) => membership.view(&overview),
            None => NodesView::of_one(&overview),
        }
    }

    /// What this process is among the nodes of its service; `None` when it is alone.
    pub fn standing(&self) -> Option<NodeStatus> {
        let membership = self.membership.get()?;
        let role = match (self.leads(), self.is_led()) {
            (true, _) => "leader",
            (false, true) => "follower",
            (false, false) => "leaderless",
        };
        let epoch = membership.epoch().0;
        Some(NodeStatus { role, epoch })
    }

    /// Whether this node leads; a service of one process always does.
    pub fn leads(&self) -> bool {
        matches!(*self.leader_loop.seat().borrow(), LeaderSeat::Here(_))
    }

    /// Whether somebody leads whom this node reaches.
    pub fn is_led(&self) -> bool {
        self.leader.is_staffed()
    }

    /// Nothing can be accepted, and nobody else could.
    fn refuses(&self) -> bool {
        self.membership.get().is_none() && !self.accepts()
    }

    /// Who leads, as it changes.
    pub(crate) fn seat(&self) -> watch::Receiver<LeaderSeat> {
        self.leader_loop.seat()
    }

    /// Accepts a job. When this returns its id, the job is durable. When the journal cannot be written meanwhile, the
    /// job is withdrawn: should the journal still take it later, it takes the cancel with it.
    pub async fn submit(&self, job: NewJob) -> Result<JobId, ServiceError> {
        if self.refuses() {
            return Err(ServiceError::JournalFull);
        }
        self.check_reach(&job).await?;
        let (id, vo) = (job.id, job.vo.clone());
        let accepted = self.ask(Submit(Box::new(job)));
        match self.unless_journal_is_full(accepted).await {
            Some(Ok(Ok(id))) => Ok(id),
            Some(Ok(Err(NotAccepted::StorageBanned(storage)))) => {
                let message = self.message_of_ban(&storage, vo).await;
                Err(ServiceError::StorageBanned { storage, message })
            }
            Some(Ok(Err(NotAccepted::NoRoom(open)))) => Err(ServiceError::NoRoom(open)),
            Some(Ok(Err(NotAccepted::ShareFull(full)))) => Err(ServiceError::ShareFull(full)),
            Some(Ok(Err(NotAccepted::Taken))) => Err(ServiceError::Taken(id)),
            Some(Err(ServiceError::Leaderless)) => {
                self.withdraw(id);
                Err(ServiceError::Leaderless)
            }
            Some(Err(why)) => Err(why),
            None => {
                self.withdraw(id);
                Err(ServiceError::JournalFull)
            }
        }
    }

    /// What the operators say of a ban that refuses submissions; empty where it was lifted meanwhile.
    async fn message_of_ban(&self, storage: &StorageId, vo: VoName) -> String {
        let (reader, storage) = (self.reader().clone(), storage.clone());
        let read = tokio::task::spawn_blocking(move || {
            let bans = reader.bans().unwrap_or_default().into_iter();
            let mut messages = bans.filter_map(|ban| match ban {
                Ban::Storage(ban) => (ban.covers(&storage, &vo)
                    && ban.effect.refuses_submissions())
                .then_some(ban.message),
                Ban::User(_) => None,
            });
            messages.find(|message| !message.is_empty())
        });
        read.await.ok().flatten().unwrap_or_default()
    }

    /// Whether this machine has what the job's files need.
    async fn check_reach(&self, job: &NewJob) -> Result<(), ServiceError> {
        let mut seen = BTreeSet::new();
        for transfer in &job.transfers {
            for url in [&transfer.source, &transfer.destination] {
                if url.access() != Access::Gfal || !seen.insert(url.storage()) {
                    continue;
                }
                if NEED_PROXIES.contains(&&*url.scheme()) && job.parameters.proxy.is_none() {
                    let storage = url.storage();
                    return Err(ServiceError::OutOfReach(format!(
                        "{storage} takes no tokens; delegate a proxy, and submit with the certificate"
                    )));
                }
                let reached = match &self.gfal {
                    Some(gfal) => gfal.reaches(url, &job.vo).await,
                    None => Err(format!("{}: not moved by this service", url.scheme())),
                };
                reached.map_err(ServiceError::OutOfReach)?;
            }
        }
        Ok(())
    }

    /// Waits for an answer as long as the journal can be written.
    async fn unless_journal_is_full<T>(
        &self,
        answer: impl Future<Output = Result<T, ServiceError>>,
    ) -> Option<Result<T, ServiceError>> {
        tokio::pin!(answer);
        loop {
            match tokio::time::timeout(JOURNAL_PATIENCE, &mut answer).await {
                Ok(answer) => return Some(answer),
                Err(_) if !self.refuses() => {}
                Err(_) => return None,
            }
        }
    }

    /// Changes settings. When this returns what was changed, that is durable and in effect.
    pub async fn set(
        &self,
        wish: SettingRequest,
        asker: SettingRequester,
        user: UserName,
    ) -> Result<Result<Vec<SettingChange>, SettingRefusal>, ServiceError> {
        if self.refuses() {
            return Err(ServiceError::JournalFull);
        }
        let changed = self.ask(ChangeSetting {
            wish: Box::new(wish),
            asker,
            user,
        });
        let changed = self.unless_journal_is_full(changed).await;
        changed.unwrap_or(Err(ServiceError::Undecided))
    }

    /// What operators have set, as far as it is durable.
    pub fn settings(&self) -> Arc<Settings> {
        self.node.published.settings()
    }

    /// The same; `None` before a leader has told it.
    pub fn known_settings(&self) -> Option<Arc<Settings>> {
        self.node.published.known_settings()
    }

    fn withdraw(&self, job: JobId) {
        let withdrawal = Cancel {
            job,
            transfers: None,
            reason: "withdrawn: the journal could not be written when the job was submitted".into(),
        };
        let leader = self.leader.clone();
        tokio::spawn(async move {
            if leader.ask(withdrawal).await.is_err() {
                tracing::warn!(%job, "a submission was refused but may be accepted once the journal can be written");
            }
        });
    }

    /// Cancels a job, or some of its transfers. True when the job was still open.
    pub async fn cancel(
        &self,
        job: JobId,
        transfers: Option<Vec<TransferId>>,
        reason: &str,
    ) -> Result<bool, ServiceError> {
        let reason = reason.to_owned();
        let cancel = Cancel {
            job,
            transfers,
            reason,
        };
        self.ask(cancel).await
    }

    /// Cancels whatever is open, of one VO or of all, a part at a time. What is submitted meanwhile may be among it.
    pub async fn cancel_all(
        &self,
        vo: Option<VoName>,
        reason: &str,
    ) -> Result<StoppedCount, ServiceError> {
        let mut all = StoppedCount::default();
        loop {
            let (vo, reason) = (vo.clone(), reason.to_owned());
            let some = self.ask(CancelAll { vo, reason }).await?;
            if some.transfers == 0 {
                return Ok(all);
            }
            all.jobs += some.jobs;
            all.transfers += some.transfers;
        }
    }

    /// Gives what has not started of a job another priority. True when the job was still open.
    pub async fn reprioritise(&self, job: JobId, priority: Priority) -> Result<bool, ServiceError> {
        self.ask(Reprioritise { job, priority }).await
    }

    /// Bans somebody or something from now on, also after a restart. Gives back the jobs that it concerned.
    pub async fn ban(&self, ban: Ban) -> Result<Vec<JobId>, ServiceError> {
        if self.refuses() {
            return Err(ServiceError::JournalFull);
        }
        let banned = self.ask(ImposeBan(Box::new(ban)));
        let banned = self.unless_journal_is_full(banned).await;
        let banned = banned.unwrap_or(Err(ServiceError::Undecided))?;
        banned.map_err(|TooManyBans| ServiceError::TooManyBans)
    }

    /// Lifts a ban. True when there was one.
    pub async fn lift(&self, target: BanTarget, by: UserName) -> Result<bool, ServiceError> {
        if self.refuses() {
            return Err(ServiceError::JournalFull);
        }
        let lifted = self.ask(LiftBan { target, by });
        let lifted = self.unless_journal_is_full(lifted).await;
        lifted.unwrap_or(Err(ServiceError::Undecided))
    }

    /// Why each of these transfers waits; `None` for one that does not.
    pub async fn why_waiting(
        &self,
        transfers: Vec<TransferId>,
    ) -> Result<Vec<Option<WaitReason>>, ServiceError> {
        self.ask(ExplainWaiting(transfers)).await
    }

    /// When this transfer will probably start; `None` when it does not wait, or nothing is known.
    pub async fn when_it_starts(
        &self,
        transfer: TransferId,
    ) -> Result<Option<StartEstimate>, ServiceError> {
        self.ask(EstimateStart(transfer)).await
    }

    /// Other limits and retry rules, from now on.
    pub async fn configure(&self, config: EngineConfig) -> Result<(), ServiceError> {
        self.leader_loop.configure(config.clone());
        self.leader.tell(Message::Configure(Box::new(config))).await;
        Ok(())
    }

    /// Reads the file of the keys that seal secrets again. When another one is the newest now, all nodes have it before
    /// anything is sealed with it; then what is stored is sealed anew, by and by. Returns when that has begun for the
    /// journal and ended for the delegations.
    ///
    /// Errors: the keys cannot be read, so that those before stay in use; the delegations cannot be read or written.
    pub async fn take_over_keys(&self, file: &Path) -> Result<(), ServiceError> {
        if self.membership.get().is_some() && self.is_led() && !self.leads() {
            // Those of the leader count, which tells them to all.
            return Ok(());
        }
        if let Some(membership) = self.membership.get() {
            // Whoever leads next must open what is sealed with a new one.
            membership.share_keys(&self.node.followers).await?;
        }
        if !self.keys.reload(file)? {
            return Ok(());
        }
        if let Some(membership) = self.membership.get() {
            membership.tell_keys(&self.node.followers).await;
        }
        self.leader_loop.seal_anew();
        let delegations = self.delegations.clone();
        let sealing = tokio::task::spawn_blocking(move || delegations.seal_anew());
        Ok(sealing
            .await
            .map_err(|why| ServiceError::Thread(why.into()))??)
    }

    /// Whether the clock is believed now.
    pub fn clock_trust(&self) -> ClockTrust {
        self.node.agents.tokens.clock().trust()
    }

    /// Whether the clock is believed, and how many records the journal has refused.
    pub fn doubts(&self) -> (ClockTrust, u64) {
        let standing = self.node.agents.tokens.clock().standing();
        (standing, self.node.metrics.records_refused.read())
    }

    /// What waits inside.
    pub(crate) fn queued(&self) -> QueueLengths {
        let inputs = self.leader.inputs();
        let batches = self.leader_loop.batches();
        QueueLengths {
            inputs: inputs.map_or(0, |queue| queue.max_capacity() - queue.capacity()),
            batches: batches.map_or(0, |queue| queue.max_capacity() - queue.capacity()),
        }
    }

    /// The way to the journal's thread, while there is one.
    pub(crate) fn batches(&self) -> Option<mpsc::Sender<run::Batch>> {
        self.leader_loop.batches()
    }

    /// Whether the journal takes records, as far as is known here. One that nobody can lead with takes none.
    pub fn journal(&self) -> Writability {
        match self.node.host.leaderless_for() {
            Some(lasts) if lasts > DATABASE_SILENCE_MAX => Writability::Silent(lasts),
            Some(_) | None => self.node.published.journal(),
        }
    }

    /// Why questions could not be answered from the journal at the last look; `None`: they could.
    pub fn unread(&self) -> Option<String> {
        self.node.published.unread()
    }

    /// True while jobs can be accepted.
    pub fn accepts(&self) -> bool {
        self.journal() == Writability::Writable
    }

    /// The live view, renewed once a second.
    pub fn overview(&self) -> Arc<Overview> {
        self.node.published.overview.borrow().clone()
    }

    /// Files of some jobs that move now, as far as they are at this moment. A process that does not lead knows those that
    /// the live view lists.
    pub fn running(&self, jobs: &BTreeSet<&str>) -> Vec<ActiveRow> {
        let rows: Vec<ActiveRow> = match self.leads() {
            true => {
                let running = self.node.published.running.borrow().clone();
                let running = running.iter().filter_map(Weak::upgrade);
                running.map(|one| one.to_row()).collect()
            }
            false => self.overview().active_transfers.clone(),
        };
        let is_asked = |row: &ActiveRow| jobs.contains(row.job.as_str());
        rows.into_iter().filter(is_asked).collect()
    }

    /// The sequence number of the ledger's last durable entry.
    pub fn committed(&self) -> watch::Receiver<u64> {
        self.node.published.committed.subscribe()
    }

    /// What users have delegated.
    pub fn delegations(&self) -> &Arc<Delegations> {
        &self.delegations
    }

    /// Answers from the journal.
    pub fn reader(&self) -> &Arc<dyn JournalReader> {
        &self.reader
    }

    /// Waits until the service has ended after its shutdown signal, and its last record is durable. Errors:
    /// [`ServiceError::Unwritten`].
    pub async fn ended(&self) -> Result<(), ServiceError> {
        let Some(ending) = self.ending.lock().await.take() else {
            return Ok(());
        };
        // Whether it panicked was told.
        ending.await.unwrap_or(Ok(()))
    }

    async fn ask<R: Request>(&self, request: R) -> Result<R::Reply, ServiceError> {
        self.leader.ask(request).await.map_err(|why| match why {
            NoReply::Leaderless => ServiceError::Leaderless,
            NoReply::Ending => ServiceError::ShuttingDown,
            NoReply::NotRecorded(why) => ServiceError::NotRecorded(why),
            NoReply::Foreign => ServiceError::ForeignReply,
        })
    }
}

/// Notes for health whether questions can be answered from the journal, until the shutdown signal.
async fn look_at_journal(
    reader: Arc<dyn JournalReader>,
    node: Arc<Node>,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut due = tokio::time::interval(LOOK_EVERY);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = due.tick() => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        let reader = reader.clone();
        let mut look = tokio::task::spawn_blocking(move || reader.last_sequence());
        let looked = match tokio::time::timeout(DATABASE_SILENCE_MAX, &mut look).await {
            Ok(looked) => looked,
            Err(_) => {
                let silence = TimeSpan(DATABASE_SILENCE_MAX);
                let why = format!("it has not answered for {silence} or longer");
                node.published.set_unread(Some(why));
                look.await
            }
        };
        if let Ok(looked) = looked {
            node.published
                .set_unread(looked.err().map(|why| why.to_string()));
        }
    }
}

/// Removes what has ended while this process leads, until the shutdown signal.
async fn sweep(
    agents: Arc<AgentSetup>,
    seat: watch::Receiver<LeaderSeat>,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut due = tokio::time::interval(SWEEP_EVERY);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = due.tick() => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
        if !matches!(*seat.borrow(), LeaderSeat::Here(_)) || !agents.tokens.clock().is_credible() {
            continue;
        }
        let delegations = agents.delegations.clone();
        let keys: Vec<CloudKey> = agents.settings.borrow().cloud_keys().cloned().collect();
        let swept = tokio::task::spawn_blocking(move || {
            let now = penstock_clock::wall_clock();
            let referred = keys.into_iter().map(|key| key.secret).collect();
            delegations.sweep(now)?;
            delegations.sweep_cloud_secrets(&referred, now)
        });
        if let Ok(Err(error)) = swept.await {
            tracing::warn!(%error, "delegations that have ended could not be removed");
        }
        tokio::select! {
            () = agents.end_forgotten_uploads() => {}
            _ = shutdown.wait_for(|stop| *stop) => return,
        }
    }
}
