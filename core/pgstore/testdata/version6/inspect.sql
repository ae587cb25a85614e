-- What operators see and take. No owner leaves the database, and of a lease only the ID of
-- its process. No value of a record is read.

CREATE TABLE IF NOT EXISTS lockkit.cards ( -- since version 4
  process text COLLATE "C" PRIMARY KEY,
  until   timestamptz NOT NULL,
  card    bytea NOT NULL
) WITH (fillfactor = 60);

-- hold_id is store.HoldID in bytes: those of "hold", 0 and the lease.
CREATE OR REPLACE FUNCTION lockkit.hold_id(_lease bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT substring(sha256(decode('686f6c6400', 'hex') || _lease) FROM 1 FOR 8)
$$;

-- process_of is store.ProcessOf: the beginning of a lease that a Locker has named, which is
-- the ID of its process, and of any other lease null.
CREATE OR REPLACE FUNCTION lockkit.process_of(_lease bytea) RETURNS text -- since version 5
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN encode(_lease, 'escape') COLLATE "C" ~ '^[A-Z2-7]{34}$' THEN encode(substring(_lease FROM 1 FOR 8), 'escape') END
$$;

-- look tells of one key, or of the next _most after another one, in their order. For
-- each key there is a line of kind 0, then its holds (1), its waiters in order of
-- arrival (2), and its record (3); what is kept has no id. Lengths of time are in
-- microseconds. It locks nothing.
CREATE OR REPLACE FUNCTION lockkit.look(_key bytea, _after bytea, _most bigint) -- since version 5
RETURNS TABLE (of text, kind integer, id text, weight bigint, fair boolean, age bigint, rest bigint, done boolean, process text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  k record;
  moment timestamptz;
  ahead interval;
BEGIN
  FOR k IN
    SELECT r.key, r.token, r.written, r.holds, r.places, r.run_until, r.run_attempt, r.run_done FROM lockkit.keys r
      WHERE CASE WHEN _key IS NULL THEN r.key > _after AND r.until > clock_timestamp() ELSE r.key = _key END
      ORDER BY r.key LIMIT _most
  LOOP
    moment := clock_timestamp();
    -- As in load: what was written later than now is of before the clock was set back.
    ahead := greatest(lockkit.micros(k.written) - lockkit.micros(moment), 0) * interval '1 microsecond';
    moment := moment + ahead;
    of := encode(k.key, 'hex');
    kind := 0;
    RETURN NEXT;
    RETURN QUERY SELECT of, 1, encode(lockkit.hold_id(h.lease), 'hex'), h.weight, false,
        CASE WHEN h.lease IS NOT NULL AND h.weight = 2147483647
          AND (SELECT count(*) FROM unnest(k.holds) o WHERE o.lease IS NOT NULL AND o.until > moment) = 1
          THEN greatest(lockkit.micros(moment) - k.token, 0) ELSE 0 END,
        lockkit.micros(h.until) - lockkit.micros(moment), false, lockkit.process_of(h.lease)
      FROM unnest(k.holds) h WHERE h.until > moment;
    RETURN QUERY SELECT of, 2, encode(lockkit.hold_id(p.lease), 'hex'), p.weight, p.fair, 0::bigint,
        lockkit.micros(p.until) - lockkit.micros(moment), false, lockkit.process_of(p.lease)
      FROM unnest(k.places) WITH ORDINALITY p (lease, owner, weight, cap, fair, run, wake, until, n)
      WHERE p.until > moment ORDER BY p.n;
    IF k.run_until > moment THEN
      RETURN QUERY SELECT of, 3, NULL::text, k.run_attempt, false, 0::bigint,
        lockkit.micros(k.run_until) - lockkit.micros(moment), k.run_done, NULL::text;
    END IF;
  END LOOP;
END $$;

-- show is what programs of version 4 call.
CREATE OR REPLACE FUNCTION lockkit.show(_key bytea, _after bytea, _most bigint)
RETURNS TABLE (of text, kind integer, id text, weight bigint, fair boolean, age bigint, rest bigint, done boolean)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.of, l.kind, l.id, l.weight, l.fair, l.age, l.rest, l.done FROM lockkit.look(_key, _after, _most) l
$$;

-- revoke ends the hold with this id. With _keep its weight stays taken for that time, or
-- for the rest of the hold if that is longer.
--
-- code  0 it has ended; 2 there is none
CREATE OR REPLACE FUNCTION lockkit.revoke(_key bytea, _id bytea, _keep bigint, OUT code integer)
LANGUAGE plpgsql SET lock_timeout = '1s' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  a record;
  s lockkit.state;
  own lockkit.hold;
BEGIN
  PERFORM lockkit.begin_call();
  SELECT * INTO a FROM lockkit.load(_key);
  s := a.s;
  code := 2;
  IF s.token IS NULL THEN
    RETURN;
  END IF;
  SELECT * INTO own FROM unnest(s.holds) h WHERE lockkit.hold_id(h.lease) = _id LIMIT 1;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  s.holds := ARRAY(SELECT h FROM unnest(s.holds) h WHERE h.lease IS DISTINCT FROM own.lease);
  IF _keep > 0 THEN
    s.holds := s.holds || (NULL, NULL, own.weight, greatest(own.until, a._now + lockkit.ms(_keep)))::lockkit.hold;
  END IF;
  IF cardinality(s.places) > 0 THEN
    s := lockkit.rouse(_key, s);
  END IF;
  PERFORM lockkit.save(_key, a._now, s);
  code := 0;
END $$;

-- put_card keeps the card of a process, and drops those that have ended.
CREATE OR REPLACE FUNCTION lockkit.put_card(_process bytea, _ttl bigint, _card bytea) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '1s' SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  DELETE FROM lockkit.cards c WHERE c.process IN (
    SELECT d.process FROM lockkit.cards d WHERE d.until < clock_timestamp() LIMIT 10 FOR UPDATE SKIP LOCKED);
  INSERT INTO lockkit.cards (process, until, card)
    VALUES (convert_from(_process, 'SQL_ASCII'), clock_timestamp() + lockkit.ms(_ttl), _card)
    ON CONFLICT (process) DO UPDATE SET until = EXCLUDED.until, card = EXCLUDED.card;
  -- A crash of the server may undo it, so it need not wait for the disk.
  PERFORM set_config('synchronous_commit', 'off', true);
END $$;

-- shown_cards are those that have not ended, in the order of their processes.
CREATE OR REPLACE FUNCTION lockkit.shown_cards() RETURNS TABLE (process text, card text)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT c.process, encode(c.card, 'hex') FROM lockkit.cards c WHERE c.until > clock_timestamp() ORDER BY c.process
$$;
