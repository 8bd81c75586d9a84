-- Who leads, and since which epoch. The epoch is unique so that changing it excludes `FOR KEY SHARE`: a new leader
-- waits for the last transaction of the one before, whose next one then finds another epoch.
CREATE TABLE lease (
    lease           text PRIMARY KEY,
    epoch           bigint NOT NULL UNIQUE,
    leader          text NOT NULL,
    expires_at      timestamptz NOT NULL
);
INSERT INTO lease (lease, epoch, leader, expires_at) VALUES ('transfer', 0, '', '-infinity');

CREATE TABLE node (
    node                text COLLATE "C" PRIMARY KEY,
    address             text NOT NULL,
    certificate_sha256  bytea NOT NULL,
    version             text NOT NULL,
    schema              integer NOT NULL,
    agents_max          integer NOT NULL,
    seen_at             timestamptz NOT NULL
);

-- How far the journal's writer has come. Batches of an epoch are numbered from 1, so that one whose commit was not
-- answered is found again or written once.
CREATE TABLE journal_writer (
    one             boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch           bigint NOT NULL,
    batch           bigint NOT NULL,
    last_sequence   bigint NOT NULL,
    transfer_id_max bigint NOT NULL
);
INSERT INTO journal_writer (epoch, batch, last_sequence, transfer_id_max) VALUES (0, 0, 0, 0);

CREATE TABLE job (
    job_id          uuid PRIMARY KEY,
    username        text NOT NULL,
    vo              text COLLATE "C" NOT NULL,
    delegation      text NOT NULL,
    submitted_ms    bigint NOT NULL,
    finished_ms     bigint,
    final_state     text,
    priority        integer NOT NULL,
    parameters      text NOT NULL,
    source_se       text NOT NULL,
    destination_se  text NOT NULL
);
CREATE INDEX job_open ON job (submitted_ms, job_id) WHERE finished_ms IS NULL;
CREATE INDEX job_ended ON job (finished_ms) WHERE finished_ms IS NOT NULL;
CREATE INDEX job_submitted ON job (submitted_ms);

-- States change often. No index names a column that changes before the end, so that a row can stay in its page.
CREATE TABLE transfer (
    transfer_id             bigint PRIMARY KEY,
    job_id                  uuid NOT NULL,
    request                 text NOT NULL,
    state_name              text COLLATE "C" NOT NULL,
    state                   text NOT NULL,
    size_bytes              bigint,
    started_ms              bigint,
    finished_ms             bigint,
    has_failed              boolean NOT NULL GENERATED ALWAYS AS (state_name = 'FAILED') STORED,
    stage_request           text,
    staging_started_ms      bigint,
    staging_finished_ms     bigint,
    archiving_started_ms    bigint,
    archiving_finished_ms   bigint
) WITH (fillfactor = 80);
CREATE INDEX transfer_job ON transfer (job_id, transfer_id);
CREATE INDEX transfer_open ON transfer (transfer_id) WHERE finished_ms IS NULL;
CREATE INDEX transfer_failed ON transfer (transfer_id) WHERE has_failed;

-- The ledger and the samples go by whole partitions. The writer makes the next one before it is needed.
CREATE TABLE ledger (
    sequence        bigint PRIMARY KEY,
    at_ms           bigint NOT NULL,
    monotonic_us    bigint NOT NULL,
    job_id          uuid NOT NULL,
    transfer_id     bigint NOT NULL,
    version         integer NOT NULL,
    event           text NOT NULL
) PARTITION BY RANGE (sequence);
CREATE INDEX ledger_transfer ON ledger (transfer_id, sequence);

CREATE TABLE link_sample (
    at_ms           bigint NOT NULL,
    source          text NOT NULL,
    destination     text NOT NULL,
    moved_bytes     bigint NOT NULL,
    active          integer NOT NULL,
    slots_limit     integer NOT NULL,
    queued          bigint NOT NULL
) PARTITION BY RANGE (at_ms);
CREATE INDEX link_sample_at ON link_sample (at_ms);

CREATE TABLE link_event (
    sequence        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms           bigint NOT NULL,
    source          text NOT NULL,
    destination     text NOT NULL,
    version         integer NOT NULL,
    event           text NOT NULL
);
CREATE INDEX link_event_link ON link_event (source, destination, sequence);

CREATE TABLE sealed_credential (
    credential_id   text COLLATE "C" PRIMARY KEY,
    sealed          bytea NOT NULL
);
CREATE TABLE credential_use (
    job_id          uuid NOT NULL,
    credential_id   text COLLATE "C" NOT NULL,
    PRIMARY KEY (job_id, credential_id)
);
CREATE INDEX credential_use_credential ON credential_use (credential_id);
CREATE TABLE token_renewal (
    credential_id   text COLLATE "C" PRIMARY KEY,
    issuer          text NOT NULL,
    scope           text NOT NULL,
    audience        text NOT NULL,
    renew_ms        bigint NOT NULL,
    sealed_refresh  bytea
);

CREATE TABLE setting (
    setting_key     text COLLATE "C" PRIMARY KEY,
    version         integer NOT NULL,
    setting         text NOT NULL
);
CREATE TABLE setting_change (
    sequence        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms           bigint NOT NULL,
    username        text NOT NULL,
    action          text NOT NULL,
    setting_key     text COLLATE "C" NOT NULL,
    version         integer NOT NULL,
    setting_before  text,
    setting_after   text
);

CREATE TABLE ban (
    kind            text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,
    vo              text COLLATE "C" NOT NULL,
    version         integer NOT NULL,
    ban             text NOT NULL,
    PRIMARY KEY (kind, name, vo)
);
CREATE TABLE ban_change (
    sequence        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms           bigint NOT NULL,
    username        text NOT NULL,
    version         integer NOT NULL,
    ban_before      text,
    ban_after       text
);

-- What users have delegated, and what uploads to cloud storages have begun.
CREATE TABLE request (
    delegation_id   text COLLATE "C" PRIMARY KEY,
    username        text NOT NULL,
    made_ms         bigint NOT NULL,
    answered        boolean NOT NULL DEFAULT false,
    sealed_key      bytea NOT NULL
);
CREATE INDEX request_user ON request (username, made_ms);
CREATE INDEX request_made ON request (made_ms);
CREATE TABLE delegation (
    delegation_id   text COLLATE "C" PRIMARY KEY,
    username        text NOT NULL,
    serial          bigint NOT NULL,
    made_ms         bigint NOT NULL,
    expires_ms      bigint NOT NULL,
    attributes      text NOT NULL,
    sealed_proxy    bytea NOT NULL
);
CREATE INDEX delegation_user ON delegation (username, expires_ms);
CREATE INDEX delegation_expires ON delegation (expires_ms);
CREATE TABLE cloud_key (
    secret_id       text COLLATE "C" PRIMARY KEY,
    made_ms         bigint NOT NULL,
    sealed_key      bytea NOT NULL
);
CREATE TABLE cloud_upload (
    transfer_id     bigint NOT NULL,
    upload_id       text NOT NULL,
    url             text NOT NULL,
    begun_ms        bigint NOT NULL,
    PRIMARY KEY (transfer_id, upload_id)
);

-- How far each sink of messages was told: the next leader goes on from there.
CREATE TABLE sink_position (
    sink            text COLLATE "C" PRIMARY KEY,
    sequence        bigint NOT NULL
);
