-- undo_run takes back the last run, if _lease has begun it and not ended it.
CREATE OR REPLACE FUNCTION lockkit.undo_run(s lockkit.state, _now timestamptz, _lease bytea)
RETURNS lockkit.state LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF s.run_beginner IS DISTINCT FROM _lease THEN
    RETURN s;
  END IF;
  IF s.run_fresh OR (s.run_found).until <= _now THEN
    RETURN lockkit.forget(s);
  END IF;
  s.run_attempt := s.run_attempt - 1;
  s.run_until := coalesce((s.run_found).until, s.run_until);
  s.run_saver := (s.run_found).saver;
  s.run_beginner := (s.run_found).beginner;
  s.run_fresh := coalesce((s.run_found).fresh, false);
  s.run_found := NULL;
  RETURN s;
END $$;

-- save_run replaces the record, or drops it if it is not to be kept.
CREATE OR REPLACE FUNCTION lockkit.save_run(s lockkit.state, _now timestamptz,
  _lease bytea, _attempt bigint, _done boolean, _retain bigint, _value bytea)
RETURNS lockkit.state LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  s := lockkit.forget(s);
  IF _retain > 0 THEN
    s.run_until := _now + lockkit.ms(_retain);
    s.run_attempt := _attempt;
    s.run_done := _done;
    s.run_saver := _lease;
    s.value := _value;
  END IF;
  RETURN s;
END $$;

-- give_up releases a lease. _attempt is null for a release without a record.
--
-- code  0 it was held or waiting, or with a record: that is saved; 2 it was not
CREATE OR REPLACE FUNCTION lockkit.give_up(INOUT s lockkit.state, _key bytea, _now timestamptz,
  _lease bytea, _ttl bigint, _keep bigint, _undo boolean,
  _attempt bigint, _done boolean, _retain bigint, _value bytea, OUT code integer) LANGUAGE plpgsql AS $$
DECLARE
  own lockkit.hold;
  earlier timestamptz;
  waits boolean;
BEGIN
  IF _undo AND _attempt IS NULL THEN
    s := lockkit.undo_run(s, _now, _lease);
  END IF;

  SELECT * INTO own FROM unnest(s.holds) h WHERE h.lease = _lease;
  IF NOT FOUND THEN
    IF _attempt IS NOT NULL AND s.run_saver = _lease AND s.run_done = _done AND s.run_attempt = _attempt
      AND (SELECT k.value FROM lockkit.keys k WHERE k.key = _key) = _value THEN
      code := 0; -- it has saved this before
      RETURN;
    END IF;
    IF _attempt IS NOT NULL AND s.run_beginner = _lease THEN
      -- No other run was begun since, and no answer saved.
      s := lockkit.save_run(s, _now, _lease, _attempt, _done, _retain, _value);
      s.places := ARRAY(SELECT p FROM unnest(s.places) p WHERE p.lease <> _lease);
      code := 0;
      RETURN;
    END IF;
    -- Also for a claim that waits: a repetition of its Acquire may still be on
    -- the way.
    IF _ttl > 0 THEN
      earlier := (SELECT t.until FROM unnest(s.tombs) t WHERE t.lease = _lease);
      s.tombs := ARRAY(SELECT t FROM unnest(s.tombs) t WHERE t.lease <> _lease)
        || (_lease, greatest(earlier, _now + lockkit.ms(_ttl)))::lockkit.tomb;
    END IF;
    waits := EXISTS (SELECT FROM unnest(s.places) p WHERE p.lease = _lease);
    IF waits THEN
      s.places := ARRAY(SELECT p FROM unnest(s.places) p WHERE p.lease <> _lease);
    END IF;
    code := CASE WHEN waits AND _attempt IS NULL THEN 0 ELSE 2 END;
    RETURN;
  END IF;

  s.holds := ARRAY(SELECT h FROM unnest(s.holds) h WHERE h.lease IS DISTINCT FROM _lease);
  IF _keep > 0 THEN
    s.holds := s.holds || (NULL, NULL, own.weight, _now + lockkit.ms(_keep))::lockkit.hold;
  END IF;
  IF _attempt IS NOT NULL THEN
    s := lockkit.save_run(s, _now, _lease, _attempt, _done, _retain, _value);
  END IF;
  code := 0;
END $$;

-- release gives up a hold or a place in line, and remembers a lease that is not
-- held for _ttl.
--
-- The short way is for a hold that is all there is. If a crash of the server
-- undoes it, the hold ends with its TTL, so it need not wait for the disk.
CREATE OR REPLACE FUNCTION lockkit.release(_key bytea, _lease bytea, _ttl bigint, _keep bigint, _undo boolean,
  _attempt bigint, _done boolean, _retain bigint, _value bytea, OUT code integer)
LANGUAGE plpgsql SET lock_timeout = '1s' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  moment timestamptz;
  s lockkit.state;
  a record;
BEGIN
  PERFORM lockkit.begin_call();
  IF _keep = 0 AND _attempt IS NULL THEN
    UPDATE lockkit.keys k SET holds = '{}', until = clock_timestamp(), due = lockkit.due(k.due, clock_timestamp())
      WHERE k.key = _key AND cardinality(k.holds) = 1 AND (k.holds[1]).lease = _lease
        AND (k.holds[1]).until > clock_timestamp()
        AND k.places = '{}' AND k.tombs = '{}' AND k.run_until IS NULL;
    IF FOUND THEN
      PERFORM set_config('synchronous_commit', 'off', true);
      code := 0;
      RETURN;
    END IF;
  END IF;
  LOOP
    SELECT * INTO a FROM lockkit.load(_key);
    EXIT WHEN (a.s).token IS NOT NULL;
    IF _ttl = 0 THEN
      code := 2;
      RETURN;
    END IF;
    PERFORM lockkit.create_key(_key, a._now);
  END LOOP;
  moment := a._now;
  SELECT * INTO a
    FROM lockkit.give_up(a.s, _key, moment, _lease, _ttl, _keep, _undo, _attempt, _done, _retain, _value);
  s := a.s;
  code := a.code;
  IF cardinality(s.places) > 0 THEN
    s := lockkit.rouse(_key, s);
  END IF;
  PERFORM lockkit.save(_key, moment, s);
END $$;

-- create_key makes a row of which nothing is alive, unless there is one.
CREATE OR REPLACE FUNCTION lockkit.create_key(_key bytea, _now timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lockkit.keys (key, token, until, due, written)
    VALUES (_key, lockkit.micros(_now), _now, lockkit.bucket(_now), _now)
    ON CONFLICT (key) DO NOTHING;
  UPDATE lockkit.keys k SET token = f.token FROM lockkit.floor f WHERE k.key = _key AND k.token < f.token;
END $$;

-- extend makes a live hold last for _ttl from now, never less than before.
CREATE OR REPLACE FUNCTION lockkit.extend(_key bytea, _lease bytea, _ttl bigint, OUT code integer)
LANGUAGE plpgsql SET lock_timeout = '1s' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  moment timestamptz := clock_timestamp();
  ends timestamptz := moment + lockkit.ms(_ttl);
  a record;
BEGIN
  PERFORM lockkit.begin_call();
  UPDATE lockkit.keys k SET until = greatest(k.until, ends), due = lockkit.due(k.due, greatest(k.until, ends)),
      written = greatest(k.written, moment), holds = ARRAY(SELECT CASE WHEN h.lease = _lease
        THEN (h.lease, h.owner, h.weight, greatest(h.until, ends))::lockkit.hold ELSE h END FROM unnest(k.holds) h)
    WHERE k.key = _key AND k.written <= clock_timestamp()
      AND EXISTS (SELECT FROM unnest(k.holds) h WHERE h.lease = _lease AND h.until > clock_timestamp());
  IF FOUND THEN
    code := 0;
  ELSIF EXISTS (SELECT FROM lockkit.keys k WHERE k.key = _key AND k.written > clock_timestamp()) THEN
    SELECT * INTO a FROM lockkit.load(_key);
    IF (a.s).token IS NOT NULL THEN
      PERFORM lockkit.save(_key, a._now, a.s);
      code := lockkit.extend(_key, _lease, _ttl);
    END IF;
  END IF;
  code := coalesce(code, 2);
END $$;

-- extend_all extends many. It keeps the rows that it has locked until its end,
-- so it never waits for one. A row that another session has locked is answered with
-- 5, and is asked for again alone.
CREATE OR REPLACE FUNCTION lockkit.extend_all(_keys bytea[], _leases bytea[], _ttls bigint[]) RETURNS integer[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  codes integer[] := '{}';
BEGIN
  PERFORM lockkit.begin_call();
  FOR i IN 1 .. cardinality(_keys) LOOP
    PERFORM FROM lockkit.keys k WHERE k.key = _keys[i] FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      codes := codes || lockkit.extend(_keys[i], _leases[i], _ttls[i]);
    ELSIF EXISTS (SELECT FROM lockkit.keys k WHERE k.key = _keys[i]) THEN
      codes := codes || 5;
    ELSE
      codes := codes || 2;
    END IF;
  END LOOP;
  RETURN codes;
END $$;

-- Up to version 2 there were handover and others, too. They stay where they were made,
-- since programs of that version call them, and grant by admit as all do.
