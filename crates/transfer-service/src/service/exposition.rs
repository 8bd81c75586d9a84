//! The page of metrics.

use super::Service;
use crate::metrics::write_totals;
use penstock_protocol::exposition::Page;

impl Service {
    /// Adds its families to a page, all but those of requests, which are shared with other ports.
    pub fn write_metrics(&self, page: &mut Page) {
        let overview = self.overview();
        write_totals(page, &overview);
        self.node.metrics.write_transfers(page);
        self.node.metrics.write_links(page, &overview);
        let mut family = page.gauge(
            "penstock_journal_writable",
            "1 while the journal takes records; without it no job is accepted.",
        );
        family.sample(&[], self.accepts());
        let queues = self.queued();
        let mut family = page.gauge(
            "penstock_engine_inputs_queued",
            "Submissions, cancels and reports of agents that wait for the engine.",
        );
        family.sample(&[], queues.inputs);
        let mut family = page.gauge(
            "penstock_journal_batches_queued",
            "Batches of records that wait for the journal.",
        );
        family.sample(&[], queues.batches);
        let nodes = self.nodes();
        let mut family = page.gauge(
            "penstock_node_leads",
            "1 while this node leads the service.",
        );
        family.sample(&[], self.leads());
        let mut family = page.gauge(
            "penstock_node_led",
            "1 while this node leads or reaches the leader; without, nothing that changes something is answered.",
        );
        family.sample(&[], self.is_led());
        let mut family = page.gauge(
            "penstock_leader_epoch",
            "Which leadership of the service it is; it rises with each takeover.",
        );
        family.sample(&[], nodes.epoch);
        let mut family = page.gauge("penstock_nodes", "Nodes of the service, by role.");
        for role in ["leader", "follower", "silent"] {
            let count = nodes.nodes.iter().filter(|node| node.role == role).count();
            family.sample(&[("role", role)], count);
        }
        page.histogram(
            "penstock_journal_batch_records",
            "Records in one transaction of the journal.",
        )
        .distribution(&[], &self.node.metrics.batch_records);
        page.histogram(
            "penstock_journal_commit_seconds",
            "How long a transaction of the journal took until it was durable.",
        )
        .distribution(&[], &self.node.metrics.commit_us);
        self.node.metrics.history.write(page);
    }
}
