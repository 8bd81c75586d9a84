-- What history has lost, and up to which entry of the ledger an ended job goes. Of jobs that ended before, it is only
-- known that it is not later than `unknown_end`.
ALTER TABLE job ADD COLUMN ended_sequence bigint;
CREATE TABLE history (
    name            text COLLATE "C" PRIMARY KEY,
    value           bigint NOT NULL
);
INSERT INTO history (name, value) SELECT 'unknown_end', last_sequence FROM journal_writer;
-- Jobs that are gone, of which not all files are.
CREATE TABLE pruned_job (
    job_id          uuid PRIMARY KEY
);
