-- Release gives up a hold or a place in line, and plants a tombstone for a
-- lease that is not held, so that an acquire which comes late is refused. This
-- file does it for a hold that is all there is, relay.lua for one with waiters beside it,
-- beside.lua for one with a token or a record, release.lua for any other. What it reads is
-- value, for the next files.
--
-- after    clock.lua (key, stamp, OK)
-- KEYS[1]  the key
-- ARGV     1 'release <flags> <id> <wake>', see state.lua; flags: o only the first token
--          of the grant was used, u undo the run that this lease has begun, held or not,
--          l keep the key taken for the rest of the hold, if that is longer,
--          c cluster; 2 lease, 3 ms to remember an unknown lease. If there is more to it,
--          or the key may be no string: 4 ms to keep it taken, or 0; to save a record: 5 its
--          attempt, 6 its state (1 or 2, see clock.lua), 7 ms to keep it, 8 its value
-- answer   OK      it was held or waiting; with a record: that is saved
--          {LOST}  it was neither; with a record: that is not saved
--
-- A server out of memory accepts a DEL, HDEL or PEXPIRE, and after it all else.

local value
if not ARGV[4] then
  value = redis.pcall('GET', key)
  if type(value) == 'string' and string.sub(value, -#ARGV[2] - 1) == ' ' .. ARGV[2] then
    -- It begins with its token, of 16 digits from the year 2001 on, and ends with the lease.
    local token = string.sub(value, 1, 16)
    local past = tonumber(token) and stamp - token
    -- So many of the grant's 64 may have been used after the first. The flags begin at 9, with o.
    local step = string.sub(ARGV[1], 9, 9) == 'o' and 0 or 63
    if past and past > step then
      redis.call('DEL', key)
      return OK
    end
    -- The clock has not passed the tokens of this grant, which are 64 us. The first of them
    -- stays for 2 ms, so that the next grant has a later one; the hold is gone.
    if past and past >= 0 and redis.pcall('SET', key, 'f\tt ' .. token, 'PX', 2).ok then
      return OK
    end
  end
end
