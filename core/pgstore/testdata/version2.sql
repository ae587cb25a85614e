-- What version 2 had and version 3 does not make any more.

-- others tells whether anybody but _lease waits for what it could have now.
CREATE OR REPLACE FUNCTION lockkit.others(s lockkit.state, _lease bytea) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  p lockkit.place;
  own bigint;
  need bigint;
  ahead bigint := 0;
  lowest bigint := 2147483647;
BEGIN
  FOREACH p IN ARRAY s.places LOOP
    own := coalesce((SELECT sum(h.weight) FROM unnest(s.holds) h WHERE h.owner = p.owner), 0);
    need := coalesce((SELECT sum(h.weight) FROM unnest(s.holds) h), 0) - own + p.weight;
    IF p.fair AND own = 0 THEN
      need := need + ahead;
      ahead := ahead + p.weight;
      lowest := least(lowest, p.cap);
    END IF;
    IF p.lease <> _lease AND need <= least(p.cap, CASE WHEN p.fair AND own = 0 THEN lowest END) THEN
      RETURN true;
    END IF;
  END LOOP;
  RETURN false;
END $$;

-- handover releases the lease _from and admits another claim in one step, which
-- neither waits nor joins nor has a record. With _yield others who wait come
-- first. It is answered like acquire; with 2, nothing was done.
CREATE OR REPLACE FUNCTION lockkit.handover(_key bytea, _from bytea, _from_ttl bigint,
  _lease bytea, _owner bytea, _weight bigint, _cap bigint, _ttl bigint, _fair boolean, _least bigint, _yield boolean,
  OUT code integer, OUT who text, OUT fence bigint, OUT after bigint,
  OUT attempt bigint, OUT retain bigint, OUT value text)
LANGUAGE plpgsql SET lock_timeout = '1s' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  moment timestamptz;
  s lockkit.state;
  a record;
BEGIN
  PERFORM lockkit.begin_call();
  SELECT * INTO a FROM lockkit.load(_key);
  moment := a._now;
  s := a.s;
  IF s.token IS NULL OR NOT EXISTS (SELECT FROM unnest(s.holds) h WHERE h.lease = _from) THEN
    IF s.mended THEN
      PERFORM lockkit.save(_key, moment, s);
    END IF;
    code := 2;
    RETURN;
  END IF;
  SELECT * INTO a FROM lockkit.give_up(s, _key, moment, _from, _from_ttl, 0, false, NULL, NULL, NULL, NULL);
  s := a.s;
  IF EXISTS (SELECT FROM unnest(s.tombs) t WHERE t.lease = _lease) OR _yield AND lockkit.others(s, _lease) THEN
    code := 1;
    after := 1;
  ELSE
    SELECT * INTO a FROM lockkit.admit(s, moment, _lease, _owner, '', _weight, _cap, _ttl,
      _fair, false, _least, '', NULL, 0);
    s := a.s;
    SELECT * INTO code, who, fence, after, attempt, retain, value
      FROM lockkit.answer(_key, moment, s, a.code, a.who, a.fence, a.after, false);
  END IF;
  IF cardinality(s.places) > 0 THEN
    s := lockkit.rouse(_key, s);
  END IF;
  PERFORM lockkit.save(_key, moment, s);
END $$;
