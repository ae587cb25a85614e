-- Messages to processes that wait, by PUBLISH. silent.lua is the same for servers whose
-- scripts have no such command.

local flags, id, channel = string.match(ARGV[1], '^%a+ ?(%a*) ?(%S*) ?(.*)$')

-- A message to a process is one of these two texts:
--
--   <key> <lease>                                   the waiter may be admitted: it asks
--   <key> <lease>\n<deadline> <token> <ms>          it was admitted
--
-- The key is KEYS[1], which can have spaces but no line end; a lease has neither. The
-- deadline is that of the waiter's place in the wait list: it names the place for which
-- the grant counts. The token is the first one of the grant, 0 for a weight that has
-- none. The grant lasts for these ms from the message on. All numbers are decimal
-- digits, times are in ms. release_relay.lua writes the second text too; wake of
-- watch.go and readPush of push.go read both.

-- publish sends a message to the process with an id. It returns the number of
-- connections that have received it, in a cluster those of one node, or nil if it may
-- not publish: then waiters poll.
local function publish(id, message)
  local got = redis.pcall('PUBLISH', channel .. id, message)
  return type(got) == 'number' and got or nil
end

-- listening returns the number of subscribers of a process's own channel: PUBLISH also
-- counts those of a pattern of channels. It returns false if that may not be asked.
local function listening(id)
  local got = redis.pcall('PUBSUB', 'NUMSUB', channel .. id)
  return not got.err and tonumber(got[2])
end

-- finish returns the answer of the script.
local function finish(answer)
  return answer
end

