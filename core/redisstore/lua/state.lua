-- The state of a key that is not trivial, for acquire.lua and release.lua, which come next.
--
-- after    clock.lua (key, stamp),
--          look.lua (us, now, ALL, WAITER_LIFE, WINDOW, ASKED, isString, fields, joined, put, beyond),
--          and what stands between them in a script
-- KEYS[1]  the key
-- ARGV     1 '<verb> <flags> <id> <wake>', which calls of a process share: flags in
--          letters, the id of the channel that wakes the process, and the prefix of all
--          such channels; the rest as in free.lua or only.lua
-- answer   none here

local flags, id, channel = string.match(ARGV[1], '^%a+ (%a*) (%S+) (.*)$')
local function has(flag)
  return string.find(flags, flag, 1, true) ~= nil
end
local cluster = has('c')
-- A line of the wait list: lease, deadline, kind, weight, limit, owner, channel id:
-- "\nL2 1764088672123 5 2147483647 2147483647 O2 C2\nL3 ...\n": a list begins with a line end.
-- Kinds: 0 neither of these, 1 fair, 2 with a record, 3 both, 4 can be granted by message,
-- 5 that and fair.
local FAIR = {['1'] = true, ['3'] = true, ['5'] = true}
-- So many are granted in one step; the next one is woken, and goes on with it.
local MOST = 100
local ENTRY = '(%S+) (%d+) (%d) (%d+) (%d+) (%S+) (%S+)\n'

-- begun tells whether lease has begun the run of a record, and the run has not ended.
local function begun(record, lease)
  return record and record.by == lease and (record.state == '0' or record.state == '3')
end

-- text is what is stored of a hold that lasts for ms from now.
local function text(ms, owner, weight)
  return stamp .. ' ' .. ms .. ' ' .. owner .. ' ' .. weight
end

-- load reads what is alive in the answer of HGETALL. `stale` lists expired fields of others, and `mended`
-- those from before the clock was set back, with their new values. Neither lists all if there are very
-- many: a call takes a few thousand arguments at most.
local function load(flat, lease)
  local s = {flat = flat, exists = #flat > 0, sum = 0, owners = {}, stale = {}, mended = {}, token = 0, waits = ''}
  local granted = 0
  for i = 1, #flat, 2 do
    local name, value = flat[i], flat[i + 1]
    local kind = string.sub(name, 1, 2)
    if kind == 'w' then
      s.waits = value
    elseif kind == 't' then
      s.token = tonumber(value)
    elseif kind == 'v' then
      s.value = value
    elseif kind == 'r' then
      local deadline, attempt, state, by, before = string.match(value, '^(%d+) (%d+) (%d) (%S*) ?(.*)$')
      s.record = {deadline = tonumber(deadline), attempt = tonumber(attempt), state = state, by = by,
        before = before, text = value}
    else
      local since, most, owner, weight = string.match(value, '^(%d+) (%d+) ?(%S*) ?(%d*)$')
      since = tonumber(since)
      local from = (since - since % 1000) / 1000
      if weight == '' then
        weight = ALL
        granted = kind == 'h:' and since > granted and since or granted
      else
        weight = tonumber(weight)
      end
      local own = string.sub(name, 3) == lease
      local deadline = math.min(from, now) + most
      if from > now and not (own and kind == 'h:') and #s.mended < 1000 then
        s.mended[#s.mended + 1] = name
        s.mended[#s.mended + 1] = kind == 'd:' and stamp .. ' ' .. most or text(most, owner, weight)
      end
      if deadline > now then
        if kind ~= 'd:' then
          local o = s.owners[owner]
          if not o then
            o = {sum = 0, heaviest = 0, first = deadline}
            s.owners[owner] = o
          end
          o.sum = o.sum + weight
          o.heaviest = math.max(o.heaviest, weight)
          o.first = math.min(o.first, deadline)
          s.sum = s.sum + weight
        end
        if own and kind == 'h:' then
          s.own = {deadline = deadline, weight = weight, owner = owner}
        else
          s.latest = math.max(s.latest or 0, deadline)
          if own then
            s.dead = math.max(s.dead or 0, deadline)
          end
        end
      elseif own then
        s.expired = s.expired or kind == 'h:'
      elseif #s.stale < 1000 then
        s.stale[#s.stale + 1] = name
      end
    end
  end
  if s.record and s.record.deadline <= now then
    s.record, s.value, s.spent = nil, nil, true
  end
  if granted > s.token then
    -- To be written with whatever else is.
    s.token, s.untold = granted, true
  end
  return s
end

-- hold adds a weight to what an owner holds, or takes it away if it is negative.
local function hold(s, owner, weight)
  local o = s.owners[owner] or {sum = 0}
  o.sum = o.sum + weight
  s.owners[owner] = o.sum > 0 and o or nil
  s.sum = s.sum + weight
end

-- alive tells whether a place in line has not ended. One that is too far ahead
-- is of before the clock was set back, and its waiter may be gone; if not, it
-- asks again.
local function alive(deadline)
  deadline = tonumber(deadline)
  return deadline > now and deadline <= now + 2 * WAITER_LIFE
end

-- place finds the lease's live entry in the wait list: where it begins and
-- ends. It drops a dead one.
local function place(s, lease)
  local from = string.find(s.waits, '\n' .. lease .. ' ', 1, true)
  if not from then
    return nil
  end
  local to = string.find(s.waits, '\n', from + 1, true)
  local deadline = string.match(s.waits, ' (%d+)', from)
  if alive(deadline) then
    return from + 1, to
  end
  s.waits = string.sub(s.waits, 1, from) .. string.sub(s.waits, to + 1)
  return nil
end

-- room tells whether weight of limit fits, and if not, when the first of those
-- in the way is over. `who` is the owner that would hold, `held` what it holds already.
local function room(s, lease, who, held, weight, limit, fair)
  local sum, cap, after = weight, limit, nil
  for name, o in pairs(s.owners) do
    if name ~= who then
      sum = sum + o.sum
      after = math.min(after or o.first, o.first)
    end
  end
  if fair and not held and sum <= cap then
    -- Earlier fair waiters count as if they held, so a claim that is admitted
    -- before them takes nothing from them.
    for other, deadline, queued, w, l, o in string.gmatch(s.waits, ENTRY) do
      if other == lease or sum > cap then
        break
      end
      if FAIR[queued] and o ~= who and alive(deadline) then
        sum, cap = sum + tonumber(w), math.min(cap, tonumber(l))
        after = math.min(after or math.huge, tonumber(deadline))
      end
    end
  end
  return sum <= cap, after
end

-- announce publishes a grant when it is written. A grant that no process hears of is
-- taken back.
local function announce(s)
  local unheard = {}
  for _, g in ipairs(s.granted or {}) do
    local got = redis.pcall('PUBLISH', g.channel, g.message)
    if type(got) ~= 'number' or got == 0 then
      unheard[#unheard + 1] = g.field
    end
  end
  if #unheard == 0 then
    return
  end
  if isString then
    redis.pcall('SET', key, joined(fields(redis.call('GET', key)), {}, unheard), 'KEEPTTL')
  else
    redis.pcall('HDEL', key, unpack(unheard))
  end
end

-- wake publishes to the first waiter that fits now and can be reached. One that
-- can be granted the key by message is; any other has to ask. A fair
-- waiter keeps its place till then, and what it asks for counts for the fair ones behind
-- it. In a cluster the count of receivers tells
-- nothing, as they may be at another node.
local function wake(s)
  -- listening counts the subscribers of a process's own channel: PUBLISH also counts
  -- those of a pattern of channels. It is false where that must not be asked.
  local function listening(id)
    local got = redis.pcall('PUBSUB', 'NUMSUB', channel .. id)
    return not got.err and tonumber(got[2])
  end
  -- grant admits a waiter without having been asked, if its process listens. It is
  -- told of that when it is written. The hold is short: the waiter may have gone.
  local function grant(s, id, lease, deadline, weight, owner)
    local age = WAITER_LIFE - (deadline - now)
    if age < 0 or age > ASKED or s.granted and #s.granted >= MOST then
      return false
    end
    if (listening(id) or 0) == 0 then
      return false
    end
    local ms, token = age + WINDOW, 0
    if weight == ALL then
      -- 64 is STEP.
      s.token = math.max(s.token + 64, us)
      token = s.token
    end
    hold(s, owner, weight)
    s.latest = math.max(s.latest or 0, now + ms)
    -- What it held before, and has ended, is not dropped any more.
    for i = #s.stale, 1, -1 do
      if s.stale[i] == 'h:' .. lease then
        table.remove(s.stale, i)
      end
    end
    s.granted = s.granted or {}
    s.granted[#s.granted + 1] = {
      field = 'h:' .. lease, value = text(ms, owner, weight), channel = channel .. id,
      message = string.format('%s %s\n%s %.0f %.0f', key, lease, deadline, token, ms),
    }
    return true
  end
  local kept, pos, reached = '', 2, false
  local ahead, cap = 0, ALL
  while pos <= #s.waits and not reached and s.sum < ALL do
    local stop = string.find(s.waits, '\n', pos, true)
    local line = string.sub(s.waits, pos, stop)
    local lease, deadline, kind, weight, limit, owner, id = string.match(line, ENTRY)
    local stay = alive(deadline)
    if stay then
      weight, limit = tonumber(weight), tonumber(limit)
      local fair, held = FAIR[kind], s.owners[owner]
      local sum = s.sum + weight - (held and held.sum or 0)
      local most = limit
      if fair and not held then
        sum, most = sum + ahead, math.min(limit, cap)
      end
      if sum <= most then
        -- Kinds 4 and 5 can be granted by message.
        if kind >= '4' and not held and grant(s, id, lease, deadline, weight, owner) then
          stay, fair = false, false
        else
          -- pcall: without the right to publish, waiters poll.
          local got = redis.pcall('PUBLISH', channel .. id, key .. ' ' .. lease)
          reached = cluster or type(got) ~= 'number' or got > 0 and listening(id) ~= 0
          stay = fair or not reached
        end
      end
      if fair and not held then
        ahead, cap = ahead + weight, most
      end
    end
    if stay then
      kept = kept .. line
    end
    pos = stop + 1
  end
  s.waits = '\n' .. kept .. string.sub(s.waits, pos)
end

-- horizon is how many ms the key has to live from now: as long as anything in
-- it, and until the clock has passed the tokens of the last grant.
local function horizon(s)
  local ms = 0
  if s.latest then
    ms = s.latest - now
  end
  if s.own then
    ms = math.max(ms, s.own.deadline - now)
  end
  if s.record then
    ms = math.max(ms, s.record.deadline - now)
  end
  if #s.waits > 1 then
    ms = math.max(ms, WAITER_LIFE)
  end
  return beyond(ms, s.token)
end

-- finish writes what a release has changed, and drops what is stale. What is
-- added goes first: if only one of the two is allowed, the key is rather taken
-- too long than free too soon.
local function finish(s, waits, set, drop)
  if s.waits ~= waits then
    if #s.waits > 1 then
      set[#set + 1], set[#set + 2] = 'w', s.waits
    else
      drop[#drop + 1] = 'w'
    end
  end
  if s.spent then
    drop[#drop + 1], drop[#drop + 2] = 'r', 'v'
  end
  for _, g in ipairs(s.granted or {}) do
    set[#set + 1], set[#set + 2] = g.field, g.value
    set[#set + 1], set[#set + 2] = 't', s.token
  end
  if s.untold then
    set[#set + 1], set[#set + 2] = 't', s.token
  end
  local ms = horizon(s)
  if ms <= 0 then
    if s.exists then
      redis.call('DEL', key)
    end
    return
  end
  if isString then
    put(joined(s.flat, set, drop), ms)
    if s.granted then
      announce(s)
    end
    return
  end
  redis.call('PEXPIRE', key, ms)
  if #set > 0 then
    redis.call('HSET', key, unpack(set))
    if not s.exists then
      redis.call('PEXPIRE', key, ms)
    end
  end
  if #drop > 0 then
    redis.call('HDEL', key, unpack(drop))
  end
  announce(s)
end
