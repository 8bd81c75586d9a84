-- What has to be looked after at destinations of transfers that have ended.
CREATE TABLE tidying (
    transfer_id     bigint PRIMARY KEY,
    version         integer NOT NULL,
    tidying         text NOT NULL
);
