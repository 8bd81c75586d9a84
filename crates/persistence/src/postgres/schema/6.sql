-- What was counted in each minute, packed. Of one minute there may be several parts: of one leader each.
CREATE TABLE minute_sample (
    sequence        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms           bigint NOT NULL,
    until_ms        bigint NOT NULL,
    version         integer NOT NULL,
    packed          bytea NOT NULL
);
CREATE INDEX minute_sample_at ON minute_sample (at_ms);
