-- The functions that read, change and write the state of a key. The other functions for
-- a hash are in crowd.lua, which precedes this file: `holding`, `glance`, `settle` and
-- `scatter`, and the pattern `LEASE`. `CROWD` is in clock.lua.

-- The weight and the limit of an exclusive claim.
local ALL = 2147483647
-- STEP is the number of tokens of a grant (store.TokenStep), and REST the number after
-- the first.
local STEP, REST = 64, 63

-- text returns the stored text of a hold that lasts for ms from now.
local function text(ms, owner, weight)
  return string.format('%s %.0f %s %.0f', stamp, ms, owner, weight)
end

-- hold adds a weight to the holds of an owner. A negative weight reduces them.
local function hold(s, owner, weight)
  local o = holding(s, owner) or {sum = 0}
  o.sum = o.sum + weight
  s.owners[owner] = o.sum > 0 and o
  s.sum = s.sum + weight
end

-- take adds a lease to the state, unless it has expired.
local function take(s, name, text, lease)
  local since, ms, owner, weight = string.match(text, LEASE)
  local kind, own = string.sub(name, 1, 1), string.sub(name, 3) == lease
  local from, most = math.floor(tonumber(since) / 1000), tonumber(ms)
  local deadline = math.min(from, now) + most
  weight = tonumber(weight)
  if from > now then
    text, s.changed = stamp .. string.sub(text, #since + 1), true
    if kind == 'h' and weight == ALL and from > now + 1 then
      -- The holder's token may be higher than t, see clock.lua, but it is a time before
      -- the end of the hold.
      s.token = math.max(s.token, (from + most) * 1000)
    end
  end
  if deadline <= now then
    s.changed = true
  else
    s.leases[name] = text
    if kind ~= 'd' then
      local o = s.owners[owner] or {sum = 0, heaviest = 0, first = deadline}
      s.owners[owner] = o
      o.sum, s.sum = o.sum + weight, s.sum + weight
      o.heaviest, o.first = math.max(o.heaviest, weight), math.min(o.first, deadline)
    end
    if own and kind == 'h' then
      s.own = {deadline = deadline, weight = weight, owner = owner}
    else
      s.latest = math.max(s.latest or 0, deadline)
      s.dead = own and math.max(s.dead or 0, deadline) or s.dead
    end
  end
end

-- whole returns the state of a hash from all its names and texts.
local function whole(flat, lease)
  local s = {exists = true, changed = true, old = {}, leases = {}, owners = {}, sum = 0, token = 0, waits = ''}
  for i = 1, #flat, 2 do
    local name, text = flat[i], flat[i + 1]
    if name == 'n' then
      s.n = text
    else
      s.old[name] = text
      if name == 't' then
        s.token = tonumber(text)
      elseif name == 'w' then
        s.waits = text
      elseif string.sub(name, 1, 2) ~= 'o:' then
        take(s, name, text, lease)
      end
    end
  end
  return s
end

-- load reads the value of the key, without expired entries. The time of entries that
-- were written before the clock was set back starts again. `changed` is set if there
-- were entries of these two kinds. If there is no value, the key may be a hash, see
-- crowd.lua. glance explains `room`.
local function load(value, lease, room)
  local s = {leases = {}, owners = {}, sum = 0, token = 0, waits = ''}
  if not value then
    local part, n = glance(lease, room)
    return part or n and whole(redis.call('HGETALL', KEYS[1]), lease) or s
  end
  s.exists = true
  local ms, owner, by = string.match(value, '^(%d+) (%S+) (%S+)$')
  if ms then
    -- `began` is the time at which the key was set. It is in the future if the clock was
    -- set back since then. It is also in the future if another client has removed the
    -- key's expiry. In both cases the hold lasts from now on. The clocks of TIME and
    -- PTTL can differ by a millisecond, so the token is the end of the next millisecond.
    local left = redis.call('PTTL', KEYS[1])
    local began = left < 0 and now + 1 or now + math.max(left, 1) - tonumber(ms)
    value = string.format('f\th:%s %.0f000 %s %s %d\tt %.0f999', by, began, ms, owner, ALL, began + 1)
  elseif value ~= 'f' and string.sub(value, 1, 2) ~= 'f\t' then
    -- No Store wrote the value. This raises the server's own error (WRONGTYPE).
    redis.call('HGETALL', KEYS[1])
  end
  local long = string.find(value, '\tv ', 1, true)
  for name, text in string.gmatch(string.sub(value, 2, (long or 0) - 1), '\t(%S+) ([^\t]*)') do
    if name == 't' then
      s.token = math.max(s.token, tonumber(text))
    elseif name == 'w' then
      s.waits = text
    elseif name == 'r' then
      local deadline, attempt, state, by, before = string.match(text, '^(%d+) (%d+) (%d) (%S*)(.*)$')
      deadline = tonumber(deadline)
      if deadline == 0 then
        local left = redis.call('PTTL', KEYS[1])
        deadline = now + (left == -1 and FOREVER or left)
      end
      if deadline > now then
        s.record = {deadline = deadline, attempt = tonumber(attempt), state = state, by = by, before = before}
        s.value = string.sub(value, long + 3)
      else
        s.changed = true
      end
    else
      take(s, name, text, lease)
    end
  end
  return s
end

-- written returns the stored text of the state without the record's value.
local function written(s)
  local all, r = {'f'}, s.record
  if r then
    all[2] = string.format('\tr %.0f %.0f %s %s%s', r.deadline, r.attempt, r.state, r.by, r.before)
  end
  for name, text in pairs(s.leases) do
    all[#all + 1] = '\t' .. name .. ' ' .. text
  end
  if s.token > 0 then
    all[#all + 1] = string.format('\tt %.0f', s.token)
  end
  if #s.waits > 1 then
    all[#all + 1] = '\tw ' .. s.waits
  end
  return table.concat(all)
end

-- save writes the state. The key lives as long as any entry in it, and until the clock
-- has passed the tokens of the last grant. save deletes a key that has neither entries
-- nor such tokens. A server out of memory refuses a SET but accepts a PEXPIRE, and after a
-- PEXPIRE it also accepts a SET. With `less`, save uses this order, for extensions and
-- releases. The second SET raises any other error.
local function save(s, less)
  local last = math.max(s.latest or 0, s.own and s.own.deadline or 0, s.record and s.record.deadline or 0)
  local ms = math.max(last - now, #s.waits > 1 and WAITER_LIFE or 0)
  if s.token + REST >= us then
    ms = math.max(ms, math.ceil((s.token + REST - us) / 1000) + 1)
  end
  local count = 0
  for _ in pairs(s.leases) do
    count = count + 1
  end
  if s.part or s.old and count > CROWD / 2 and not s.record then
    return settle(s, less, ms)
  end
  if ms <= 0 then
    if s.exists then
      redis.call('DEL', KEYS[1])
    end
    return
  end
  local value = written(s)
  if s.record then
    value = value .. '\tv ' .. s.value
  end
  local refused = redis.pcall('SET', KEYS[1], value, 'PX', ms).err
  if refused then
    if less and string.find(refused, 'OOM', 1, true) then
      redis.call('PEXPIRE', KEYS[1], ms)
    end
    redis.call('SET', KEYS[1], value, 'PX', ms)
  end
  s.old = nil
  if count > CROWD and not s.record and not pcall(scatter, s, ms) then
    redis.call('SET', KEYS[1], value, 'PX', ms)
    s.old = nil
  end
end
