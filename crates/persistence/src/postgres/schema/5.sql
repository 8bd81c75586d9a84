-- Which turn to lead an epoch is, should a database that has lost its last commits give the same epoch twice, and how
-- long the lease was that was given. A leader of an earlier version leaves both as they are, and changes the epoch.
ALTER TABLE lease ADD COLUMN holder bigint NOT NULL DEFAULT 0;
ALTER TABLE lease ADD COLUMN term_seconds double precision;
ALTER TABLE journal_writer ADD COLUMN holder bigint NOT NULL DEFAULT 0;
