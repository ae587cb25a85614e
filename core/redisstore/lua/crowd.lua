-- A crowd is a key with many leases. It is a hash, of which a script reads and writes
-- only the fields that it needs. So the cost of a reader does not depend on the number
-- of other readers.
--
-- A key with more than CROWD leases and no record is a hash, and becomes a string again
-- with half as many leases. It may live up to LATE longer than its leases, so that few
-- scripts have to move its expiry. It has the fields h, k, d, t and w of clock.lua, one h, k
-- or d for each lease, and
--   o:<owner>  the leases of an owner's holds, each between spaces: " L1 L2 "
--   n          six numbers that summarize all leases:
--              the time of a script's last write, in us; in the future if the clock was set back
--              a time before which no lease expires, in ms
--              a time before which no hold expires, in ms, or 0 if there is no hold
--              the number of leases
--              the weights of all holds
--              the weights of the holds without an owner
--              Blanks at the end make the text so long that a server stores the hash as a table by
--              default, in which it finds a field at once
-- An expired lease counts until a script reads all leases. Scripts read all leases if
-- the answer depends on a lease that may have expired, and LATE after the expiry of any
-- lease.
--
-- The state of a hash, see state.lua, has `old`, the fields that were read. If the state
-- has `part`, which contains the numbers of n, it has only some of the leases. These are
-- the script's own lease, and the leases of the owners for whom the script asks.

-- The stored text of a lease: since, ms, owner, weight.
local LEASE = '^(%d+) (%d+) ?(%S*) ?(%d*)$'

-- field returns the text of a field of a hash, or nil.
local function field(name)
  return redis.call('HMGET', KEYS[1], name)[1] or nil
end

-- holding returns a table with the total weight of an owner's holds, `sum`, or nil or
-- false if there are none. In a hash it reads the owner's leases.
local function holding(s, owner)
  if not s.part or s.owners[owner] ~= nil then
    return s.owners[owner]
  end
  local o = {sum = 0, heaviest = 0}
  local list = s.lists[owner] or field('o:' .. owner) or ''
  s.old['o:' .. owner] = #list > 0 and list or nil
  for lease in string.gmatch(list, '%S+') do
    local name = 'h:' .. lease
    local text = s.old[name] or field(name)
    local since, ms, by, weight = string.match(text or '', LEASE)
    if by == owner then
      if not s.old[name] then
        s.leases[name], s.old[name] = text, text
      end
      if math.floor(since / 1000) + ms > now then
        o.sum, o.heaviest = o.sum + weight, math.max(o.heaviest, tonumber(weight))
      end
    end
  end
  s.owners[owner] = o.sum > 0 and o
  return s.owners[owner]
end

-- glance reads the part of a hash that matters for a lease, and the list of an owner of
-- the same name. Most leases are their own owner. A claim can be admitted if the weights
-- of all others are at most `room` in total. With a negative `room`, everything has to
-- be read. glance returns the state. If everything has to be read, it returns nil and n.
-- If the key does not exist, it returns nil.
local function glance(lease, room)
  local mine = {'h:' .. lease, 'k:' .. lease, 'd:' .. lease}
  local got = redis.call('HMGET', KEYS[1], mine[1], mine[2], mine[3], 't', 'w', 'n', 'o:' .. lease)
  local n = got[6]
  if not n then
    if redis.call('PTTL', KEYS[1]) ~= -2 then
      -- No Store wrote the value. This raises the server's own error (WRONGTYPE), and
      -- sets nothing.
      redis.call('SET', KEYS[1], '', 'XX', 'GET')
    end
    return nil
  end
  local written, first, free, count, sum, kept = string.match(n, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) *$')
  if not kept or room < 0 or us < tonumber(written) or tonumber(count) <= CROWD / 2 + 1 then
    return nil, n
  end
  local part = {first = tonumber(first), free = free == '0' and math.huge or tonumber(free), count = tonumber(count)}
  local s = {exists = true, part = part, n = n, leases = {}, old = {t = got[4] or nil, w = got[5] or nil},
    lists = {[lease] = got[7] or ''}, owners = {[''] = tonumber(kept) > 0 and {sum = tonumber(kept)}},
    sum = tonumber(sum), token = tonumber(got[4] or 0), waits = got[5] or ''}
  -- If another client has removed the key's expiry, or has moved it before the end of a
  -- lease, it is set again from all leases.
  part.left = redis.call('PTTL', KEYS[1])
  if part.left < 0 or part.left + LATE < part.first - now or part.first + LATE <= now
    or part.free <= now and (#s.waits > 1 or s.sum > room) then
    return nil, n
  end
  for i, name in ipairs(mine) do
    local text = got[i]
    if text then
      local since, ms, owner, weight = string.match(text, LEASE)
      local deadline = math.floor(since / 1000) + ms
      if deadline <= now then
        return nil, n
      end
      s.leases[name], s.old[name] = text, text
      if i == 1 then
        s.own = {deadline = deadline, weight = tonumber(weight), owner = owner}
      else
        s.dead = math.max(s.dead or 0, deadline)
      end
    end
  end
  return s
end

-- settle writes the changes of a hash. All entries in the state expire within ms.
local function settle(s, less, ms)
  local part = s.part or {first = math.huge, free = math.huge, count = 0}
  local first, free, count = part.first, part.free, part.count
  local fields, lists, old = {}, {}, s.old
  for name, text in pairs(s.leases) do
    local since, lasts, owner = string.match(text, LEASE)
    local deadline = math.floor(since / 1000) + lasts
    first = math.min(first, deadline)
    if string.sub(name, 1, 1) ~= 'd' then
      free = math.min(free, deadline)
    end
    if owner ~= '' and (not s.part or s.owners[owner] ~= nil) then
      lists['o:' .. owner] = (lists['o:' .. owner] or ' ') .. string.sub(name, 3) .. ' '
    end
    fields[name] = text
    if not (s.part and old[name]) then
      count = count + 1
    end
  end
  for name, list in pairs(lists) do
    fields[name] = list
  end
  fields.t = s.token > 0 and string.format('%.0f', s.token) or nil
  fields.w = #s.waits > 1 and s.waits or nil
  local puts, gone = {}, {}
  for name, text in pairs(fields) do
    if old[name] ~= text then
      puts[#puts + 1], puts[#puts + 2] = name, text
    end
  end
  for name in pairs(old) do
    if not fields[name] then
      gone[#gone + 1] = name
      if s.part and string.find(name, '^[hkd]:') then
        count = count - 1
      end
    end
  end

  -- A server out of memory refuses an HSET as the first write of a script, but refuses
  -- nothing after a write. So with `less`, settle begins with a write that such a server
  -- accepts. The write changes nothing, because no field has this name. The next HSET
  -- changes nothing either. It comes before the PEXPIRE and before the fields are removed,
  -- because the user's rights must be proven first.
  if less then
    redis.call('HDEL', KEYS[1], '')
  end
  local left = part.left
  local moves = not s.part or left < ms
  if moves or #gone > 0 then
    redis.call('HSET', KEYS[1], 'n', s.n)
  end
  if moves then
    left = math.max(ms, 1) + (s.part and LATE or 0)
    redis.call('PEXPIRE', KEYS[1], left)
  end
  for i = 1, #gone, 2 do
    redis.call('HDEL', KEYS[1], gone[i], gone[i + 1] or '')
  end
  local kept = s.owners['']
  s.n = string.format('%s %.0f %.0f %.0f %.0f %-32.0f', stamp, first, free < math.huge and free or 0, count, s.sum,
    kept and kept.sum or 0)
  for i = 1, math.max(#puts, 1), 4 do
    -- The Lua of some servers has no unpack, so some calls set n twice.
    redis.call('HSET', KEYS[1], 'n', s.n, puts[i] or 'n', puts[i + 1] or s.n, puts[i + 2] or 'n', puts[i + 3] or s.n)
  end
  s.old = fields
  if s.part then
    s.part = {first = first, free = free, count = count, left = left}
  end
end

-- scatter turns a string into a hash. Before it writes the hash, it tries the commands
-- that read and empty one. A user without these rights could not use the hash, or turn it
-- into a string again.
local function scatter(s, ms)
  redis.call('DEL', KEYS[1])
  redis.call('HMGET', KEYS[1], 'n')
  redis.call('PTTL', KEYS[1])
  redis.call('HGETALL', KEYS[1])
  redis.call('HDEL', KEYS[1], 'n')
  s.old, s.n = {}, ''
  settle(s, false, ms)
end
