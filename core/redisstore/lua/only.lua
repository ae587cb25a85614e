-- Release gives up a hold or a place in line, and plants a tombstone for a
-- lease that is not held, so that an acquire which comes late is refused. This
-- file does it for a hold that is all there is, relay.lua for one with waiters beside it,
-- beside.lua for one with a token or a record, release.lua for any other. What it reads is
-- value, for the next files.
--
-- after    clock.lua (key, stamp, OK)
-- KEYS[1]  the key
-- ARGV     1 'release <flags> <id> <wake>', see state.lua; flags: u undo the run that
--          this lease has begun, held or not, l keep the key taken for the rest of the
--          hold, if that is longer, c cluster; 2 lease, 3 ms to remember an unknown
--          lease, 4 the last token of the grant that was used, '' if that is not known. If
--          there is more to it, or the key may be no string: 5 ms to keep it taken, or 0; to
--          save a record: 6 its attempt, 7 its state (1 or 2, see clock.lua), 8 ms to keep
--          it, 9 its value
-- answer   OK      it was held or waiting; with a record: that is saved
--          {LOST}  it was neither; with a record: that is not saved
--
-- A server out of memory accepts a DEL, HDEL or PEXPIRE, and after it all else.

local value
if not ARGV[5] then
  value = redis.pcall('GET', key)
  if type(value) == 'string' and string.match(value, '^%d+ %S+ (%S+)$') == ARGV[2] then
    local ahead = ARGV[4] ~= '' and ARGV[4] - stamp
    if ahead and ahead < 0 then
      redis.call('DEL', key)
      return OK
    end
    -- The clock has not passed the tokens that were used. They stay until then, as the last of
    -- the 64 of a grant, so that the next grant has a later one; the hold is gone.
    if ahead and redis.pcall('SET', key, string.format('f\tt %.0f', ARGV[4] - 63), 'PX', math.ceil(ahead / 1000) + 2).ok then
      return OK
    end
  end
end
