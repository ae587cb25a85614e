-- The state of a key: how it is read, changed and written.

-- The weight and the limit of an exclusive claim.
local ALL = 2147483647
-- The tokens of a grant (store.TokenStep), and those after its first.
local STEP, REST = 64, 63

-- More leases than these become a hash, and a hash with half as many a string.
local CROWD = 8
-- So many ms may a hash be late to drop an expired lease where no answer depends on it, and
-- so much longer than what is in it does it last.
local LATE = 1000

-- text is what is stored of a hold that lasts for ms from now.
local function text(ms, owner, weight)
  return string.format('%s %.0f %s %.0f', stamp, ms, owner, weight)
end

-- field returns a field of a hash, or nil.
local function field(name)
  return redis.call('HMGET', KEYS[1], name)[1] or nil
end

-- held returns what an owner holds, or nil or false. Of a hash it reads no other holds.
local function held(s, owner)
  local o = s.owners[owner]
  if o == nil and s.crowd then
    o = {sum = 0, heaviest = 0, list = field('o:' .. owner)}
    for lease in string.gmatch(o.list or '', '%S+') do
      local since, ms, weight = string.match(field('h:' .. lease) or '', '^(%d+) (%d+) %S+ (%d+)$')
      if since and math.floor(since / 1000) + ms > now then
        o.sum, o.heaviest = o.sum + weight, math.max(o.heaviest, tonumber(weight))
      end
    end
    o = o.sum > 0 and o
    s.owners[owner] = o
  end
  return o
end

-- hold adds the weight of a lease to what an owner holds, or takes it away if it is negative.
local function hold(s, owner, weight, lease)
  local o = held(s, owner) or {sum = 0, list = ' '}
  o.sum, s.sum = o.sum + weight, s.sum + weight
  s.owners[owner] = o.sum > 0 and o
  if s.crowd and owner ~= '' then
    local from, to = string.find(o.list, ' ' .. lease .. ' ', 1, true)
    if from then
      o.list = string.sub(o.list, 1, from) .. string.sub(o.list, to + 1)
    end
    if weight > 0 then
      o.list = o.list .. lease .. ' '
    end
    s.leases['o:' .. owner] = #o.list > 1 and o.list
  end
end

-- gathered returns the string for the names and texts of a hash, or false if no Store wrote it.
local function gathered(flat)
  local all, ours = {'f'}, false
  for i = 1, #flat, 2 do
    local name, text = flat[i], flat[i + 1]
    if name == 'n' then
      ours = true
    elseif string.sub(name, 1, 2) ~= 'o:' and text ~= '' then
      all[#all + 1] = '\t' .. name .. ' ' .. text
    end
  end
  return ours and table.concat(all)
end

-- settle writes what has changed of a hash, which is to last for ms at least.
local function settle(s, less, ms)
  local puts, gone, count, first = {}, {}, s.count, s.first
  local function put(name, text)
    local list = text and puts or gone
    list[#list + 1], list[#list + 2] = name, text or nil
  end
  for name, text in pairs(s.leases) do
    put(name, text)
    if string.sub(name, 1, 2) ~= 'o:' then
      count = count + (text and 1 or 0) - (s.had[name] and 1 or 0)
      s.had[name] = text
      if text then
        local since, lasts = string.match(text, '^(%d+) (%d+)')
        first = math.min(first, math.floor(since / 1000) + lasts)
      end
    end
  end
  if s.token ~= s.before.t then
    put('t', string.format('%.0f', s.token))
  end
  if s.waits ~= s.before.w then
    put('w', #s.waits > 1 and s.waits)
  end
  if less or now + ms > s.ends then
    if not less then
      -- A server out of memory refuses this, and then nothing has changed. It refuses
      -- neither the PEXPIRE nor what comes after a write.
      redis.call('HSET', KEYS[1], 'n', s.meta)
    end
    s.ends = math.max(s.ends, now + ms + LATE)
    redis.call('PEXPIRE', KEYS[1], s.ends - now)
  end
  local kept = s.owners['']
  -- A hash with a text of more than 64 bytes is no list to a server, which it would search.
  s.meta = string.format('%-65s', string.format('%s %.0f %.0f %.0f %.0f %.0f', stamp, s.ends, first, count, s.sum, kept and kept.sum or 0))
  s.first, s.count, s.leases, s.before = first, count, {}, {t = s.token, w = s.waits}
  for i = 1, math.max(#puts, 1), 4 do
    redis.call('HSET', KEYS[1], 'n', s.meta, puts[i] or 'n', puts[i + 1] or s.meta, puts[i + 2] or 'n', puts[i + 3] or s.meta)
  end
  for i = 1, #gone, 2 do
    local a, b = gone[i], gone[i + 1] or gone[i]
    if type(redis.pcall('HDEL', KEYS[1], a, b)) ~= 'number' then
      redis.call('HSET', KEYS[1], a, '', b, '')
    end
  end
end

-- sweep drops expired leases from a hash, and sums up the others.
local function sweep(s)
  local flat, lists, dead = redis.call('HGETALL', KEYS[1]), {}, {}
  local kept = 0
  s.first, s.count, s.sum = s.ends, 0, 0
  for i = 1, #flat, 2 do
    local name, text = flat[i], flat[i + 1]
    local kind = string.sub(name, 1, 2)
    if kind == 'o:' then
      lists[name] = text
    elseif text ~= '' and (kind == 'h:' or kind == 'k:' or kind == 'd:') then
      local since, ms, owner, weight = string.match(text, '^(%d+) (%d+) ?(%S*) ?(%d*)$')
      local deadline = math.floor(since / 1000) + ms
      if deadline <= now then
        s.leases[name], dead[name] = false, 'o:' .. owner
      else
        s.first, s.count = math.min(s.first, deadline), s.count + 1
        s.sum = s.sum + (tonumber(weight) or 0)
        kept = kept + (kind == 'k:' and weight or 0)
      end
    end
  end
  for name, owner in pairs(dead) do
    local list, lease = lists[owner], ' ' .. string.sub(name, 3) .. ' '
    local from, to = string.find(list or '', lease, 1, true)
    if from then
      list = string.sub(list, 1, from) .. string.sub(list, to + 1)
      lists[owner] = list
      if list == ' ' then
        s.leases[owner] = false
      end
    end
  end
  s.owners[''] = kept > 0 and {sum = kept}
  -- pcall: this is but tidying up.
  pcall(settle, s, false, 0)
end

-- approach reads of a hash what counts for one lease. It drops expired ones first for a claim
-- without room or beside waiters, and from time to time. It returns the string for all of it
-- if the lease itself has expired, after the clock was set back, and for what makes a string
-- of it.
local function approach(s, lease, room)
  local got = redis.call('HMGET', KEYS[1], 'n', 't', 'w', 'h:' .. lease, 'k:' .. lease, 'd:' .. lease)
  if not got[1] then
    if redis.call('PTTL', KEYS[1]) ~= -2 then
      -- No Store wrote it: this raises the server's own error (WRONGTYPE).
      redis.call('GET', KEYS[1])
    end
    return nil
  end
  local written, ends, first, count, sum, kept = string.match(got[1], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)')
  s.exists, s.crowd, s.meta, s.had = true, true, got[1], {}
  s.ends, s.first, s.count, s.sum = tonumber(ends), tonumber(first), tonumber(count), tonumber(sum)
  s.token, s.waits = tonumber(got[2] or 0), got[3] or ''
  s.before = {t = s.token, w = s.waits}
  s.owners[''] = tonumber(kept) > 0 and {sum = tonumber(kept)}
  local all = us < tonumber(written) or room < 0 or got[4] and s.count <= CROWD / 2 + 1
  local late = s.first <= now and (s.first + LATE <= now or #s.waits > 1 or s.sum > room)
  for i, kind in ipairs({'h:', 'k:', 'd:'}) do
    local text = got[i + 3]
    if text and text ~= '' then
      local since, ms, owner, weight = string.match(text, '^(%d+) (%d+) ?(%S*) ?(%d*)$')
      local deadline = math.floor(since / 1000) + ms
      all = all or deadline <= now
      s.had[kind .. lease] = true
      if kind == 'h:' then
        s.own = {deadline = deadline, weight = tonumber(weight), owner = owner}
      else
        s.dead = math.max(s.dead or 0, deadline)
      end
    end
  end
  if all then
    return gathered(redis.call('HGETALL', KEYS[1]))
  elseif late then
    sweep(s)
  end
  return nil
end

-- load reads the value of the key, without what has ended. What is of before the clock was
-- set back begins again. `changed` says that there was either. Where there is no value, the
-- key may be a hash: then it reads what counts for the lease, and for a claim for which the
-- weights of all others together are to be `room` at most. It reads all if room is negative.
local function load(value, lease, room)
  local s = {leases = {}, owners = {}, sum = 0, token = 0, waits = ''}
  if not value then
    value = approach(s, lease, room)
    if not value then
      return s
    end
    s = {leases = {}, owners = {}, sum = 0, token = 0, waits = ''}
  end
  s.exists = true
  local ms, owner, by = string.match(value, '^(%d+) (%S+) (%S+)$')
  if ms then
    -- When the key was set, also by a clock that was set back since then. If something else has
    -- removed the key's end it is as if that was in the future: it lasts from now on. The two
    -- clocks of TIME and PTTL can differ by a millisecond, so the token is the end of the
    -- next one.
    local left = redis.call('PTTL', KEYS[1])
    local began = left < 0 and now + 1 or now + math.max(left, 1) - tonumber(ms)
    value = string.format('f\th:%s %.0f000 %s %s %d\tt %.0f999', by, began, ms, owner, ALL, began + 1)
  elseif value ~= 'f' and string.sub(value, 1, 2) ~= 'f\t' then
    -- No Store wrote it: this raises the server's own error (WRONGTYPE).
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
      local since, ms, owner, weight = string.match(text, '^(%d+) (%d+) ?(%S*) ?(%d*)$')
      local kind, own = string.sub(name, 1, 1), string.sub(name, 3) == lease
      local from, most = math.floor(tonumber(since) / 1000), tonumber(ms)
      local deadline = math.min(from, now) + most
      weight = tonumber(weight)
      if from > now then
        text, s.changed = stamp .. string.sub(text, #since + 1), true
        if kind == 'h' and weight == ALL and from > now + 1 then
          -- The holder's token may be later than t, see clock.lua, but it is from before the end.
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
  end
  return s
end

-- written is what is stored of the state, except the value, and how many leases are in it.
local function written(s)
  local all, r, count = {'f'}, s.record, 0
  if r then
    all[2] = string.format('\tr %.0f %.0f %s %s%s', r.deadline, r.attempt, r.state, r.by, r.before)
  end
  for name, text in pairs(s.leases) do
    if text then
      count = count + 1
      all[#all + 1] = '\t' .. name .. ' ' .. text
    end
  end
  if s.token > 0 then
    all[#all + 1] = string.format('\tt %.0f', s.token)
  end
  if #s.waits > 1 then
    all[#all + 1] = '\tw ' .. s.waits
  end
  return table.concat(all), count
end

-- scatter makes a hash of what is stored as a string.
local function scatter(s, ms)
  local h = {crowd = true, leases = {}, owners = {}, had = {}, sum = 0, count = 0, first = math.huge, ends = 0,
    token = s.token, waits = s.waits, before = {t = 0, w = ''}, meta = ''}
  for name, text in pairs(s.leases) do
    h.leases[name] = text
    local owner, weight = string.match(text or '', '^%d+ %d+ (%S*) (%d+)$')
    if owner then
      h.owners[owner] = h.owners[owner] or {sum = 0, list = ' '}
      hold(h, owner, tonumber(weight), string.sub(name, 3))
    end
  end
  redis.call('DEL', KEYS[1])
  settle(h, false, ms)
end

-- save writes the state. The key lives as long as anything in it, and until the clock has
-- passed the tokens of the last grant; it is gone if nothing is left. A server out of memory
-- refuses a SET but not a PEXPIRE, and after it no SET either: what gives something back
-- (`less`) goes that way. Any other error the second SET raises.
local function save(s, less)
  local last = math.max(s.latest or 0, s.own and s.own.deadline or 0, s.record and s.record.deadline or 0)
  local ms = math.max(last - now, #s.waits > 1 and WAITER_LIFE or 0)
  if s.token + REST >= us then
    ms = math.max(ms, math.ceil((s.token + REST - us) / 1000) + 1)
  end
  if s.crowd then
    return settle(s, less, math.max(ms, 0))
  end
  if ms <= 0 then
    if s.exists then
      redis.call('DEL', KEYS[1])
    end
    return
  end
  local value, count = written(s)
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
  if count > CROWD and not s.record and not pcall(scatter, s, ms) then
    redis.call('SET', KEYS[1], value, 'PX', ms)
  end
end
