-- This file reads the time, and the holds of a lock that is shared with Redisson's
-- RLock. The key of the lock is a hash that expires. Redisson grants the key to a thread
-- if the key is absent or has the thread's field. The field counts the thread's entries:
-- "<uuid>:<thread>" -> "1". The kit writes a field for each hold, named after the lease.
-- A duplicate of a claim has the same field. The kit's fields are:
--   <lease> -> "<end> <owner> <token>"  the end in ms on the clock of this server, and the
--              first token of the grant, or 0 if there is none: "1764088692123 O1 0"
--   kept:<lease> -> "<end>  0"  a hold that was released with KeepFor or revoked, and still
--              keeps the key taken; it has no owner: "1764088692123  0"
-- The key lasts until the latest end. All fields with an owner have the same owner.

local OK, BUSY, LOST = 0, 1, 2
local time = redis.call('TIME')
local now = math.floor(time[1] * 1000 + time[2] / 1000)

-- read returns the hold in the value of a field that the kit wrote. For another value it
-- returns nil.
local function read(value)
  local ends, owner, token = string.match(value or '', '^(%d+) (%S*) (%d+)$')
  if ends then
    return {ends = tonumber(ends), owner = owner, token = tonumber(token)}
  end
end

local function write(lease, ends, owner, token)
  redis.call('HSET', KEYS[1], lease, string.format('%.0f %s %.0f', ends, owner, token))
end

-- lifetime returns the remaining ms of the key, or a negative number if the key is
-- absent or never expires. It raises the server's error if the user may not set the
-- expiry. So an HSET after it leaves no key without an expiry. Its PEXPIRE changes
-- nothing, except that a key that never expires gets an expiry in 31 years. A server out
-- of memory refuses an HSET as the first write of a script, but accepts it after the
-- PEXPIRE.
local function lifetime()
  local left = redis.call('PTTL', KEYS[1])
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left < 0 and 1e12 or math.max(left, 1)))
  return left
end

-- lastFor makes a key with this lifetime last for at least ms.
local function lastFor(ms, left)
  if left < ms then
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ms))
  end
end

-- few reports whether the key has at most 1000 fields. A hash with more fields counts as
-- another program's.
local function few()
  return redis.call('HLEN', KEYS[1]) <= 1000
end
