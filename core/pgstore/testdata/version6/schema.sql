-- What pgstore keeps, in a schema of its own. Running this again changes nothing;
-- Migrate runs it, and then the functions in sql, under a lock.
--
-- All that is known of one lock is one row, so that every step locks one row and
-- no more, and its state is that of one moment. Keys, owners and leases are
-- bytes: nothing depends on encodings or collations. The functions that are called
-- from outside find names in pg_catalog alone, and so does this while it is run:
-- what others have put into the search path may fit an operator better.

CREATE SCHEMA IF NOT EXISTS lockkit;

DO $$
BEGIN
  IF to_regtype('lockkit.hold') IS NULL THEN
    -- One hold. Without lease and owner: one that was released, but stays for a while.
    CREATE TYPE lockkit.hold AS (lease bytea, owner bytea, weight bigint, until timestamptz);
  END IF;
  IF to_regtype('lockkit.place') IS NULL THEN
    -- A waiting claim. run: it asks with a record. wake: the channel of its Store.
    CREATE TYPE lockkit.place AS (lease bytea, owner bytea, weight bigint, cap bigint,
      fair boolean, run boolean, wake text, until timestamptz);
  END IF;
  IF to_regtype('lockkit.tomb') IS NULL THEN
    -- A lease that was released while it was not held, and is refused until then.
    CREATE TYPE lockkit.tomb AS (lease bytea, until timestamptz);
  END IF;
  IF to_regtype('lockkit.found') IS NULL THEN
    -- The record that a run has found: what is there again if the run is taken back.
    CREATE TYPE lockkit.found AS (until timestamptz, saver bytea, beginner bytea, fresh boolean);
  END IF;
END $$;

CREATE TABLE IF NOT EXISTS lockkit.keys (
  key          bytea PRIMARY KEY,
  token        bigint NOT NULL,      -- of the last exclusive grant, to which the 63 after it belong, too (store.TokenStep)
  until        timestamptz NOT NULL, -- when nothing of this row is alive any more
  due          integer NOT NULL,     -- when to look for it then, see lockkit.bucket
  written      timestamptz NOT NULL, -- when the deadlines below were as far ahead as they are meant, see lockkit.load
  holds        lockkit.hold[] NOT NULL DEFAULT '{}',
  places       lockkit.place[] NOT NULL DEFAULT '{}', -- in order of arrival
  tombs        lockkit.tomb[] NOT NULL DEFAULT '{}',
  run_until    timestamptz,          -- until when the record is kept; null: there is none
  run_attempt  bigint,
  run_done     boolean,
  run_saver    bytea,                -- the lease that saved it, if no run has begun since
  run_beginner bytea,                -- the lease that began the last run, if nothing was saved since
  run_fresh    boolean,              -- that run found no record
  run_found    lockkit.found,        -- what it found; null if that is not known
  value        bytea                 -- of the record
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.2);

ALTER TABLE lockkit.keys ADD COLUMN IF NOT EXISTS run_found lockkit.found; -- since version 2

CREATE INDEX IF NOT EXISTS keys_due ON lockkit.keys (due);

-- The highest token of all rows that were deleted. No grant of a key without a row has
-- had a higher one.
CREATE TABLE IF NOT EXISTS lockkit.floor (
  one   boolean PRIMARY KEY DEFAULT true CHECK (one),
  token bigint NOT NULL
);
INSERT INTO lockkit.floor (token) VALUES (0) ON CONFLICT DO NOTHING;

-- The newest token that CheckToken has seen for a resource. A row belongs to the
-- resource: it is to be deleted with it, and not before.
CREATE TABLE IF NOT EXISTS lockkit.seen (
  resource text COLLATE "C" PRIMARY KEY,
  token    bigint NOT NULL
) WITH (fillfactor = 80);

CREATE TABLE IF NOT EXISTS lockkit.version (
  one     boolean PRIMARY KEY DEFAULT true CHECK (one),
  version integer NOT NULL
);
