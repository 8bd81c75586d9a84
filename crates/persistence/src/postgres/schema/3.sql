-- How many transfers run on links and at storage elements, as it was decided.
CREATE TABLE tuning (
    sequence        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms           bigint NOT NULL,
    source          text NOT NULL,
    destination     text NOT NULL,
    version         integer NOT NULL,
    decision        text NOT NULL
);
CREATE INDEX tuning_place ON tuning (source, destination, sequence);
