-- Messages to waiting processes, by PUBLISH. silent.lua replaces this file on servers
-- whose scripts cannot use PUBLISH.

local flags, id, channel = string.match(ARGV[1], '^%a+ ?(%a*) ?(%S*) ?(.*)$')

-- A message to a process is one of these two texts:
--
--   <key> <lease>                                   the waiter may fit now, and has to ask again
--   <key> <lease>\n<deadline> <token> <ms>          the waiter was admitted
--
-- The key is KEYS[1], which can contain spaces but no line end. A lease contains
-- neither. The deadline is a part of the waiter's place in the wait list, and identifies
-- the place for which the grant counts. The token is the first token of the grant, or 0
-- for a weight without tokens. The number ms is the time for which the grant lasts, from
-- the message on. All numbers are decimal digits, and times are in ms. release_relay.lua
-- writes the second text too. wake of watch.go and readPush of push.go read both texts.

-- publish sends a message to the process with an id. It returns the number of
-- connections that have received the message. In a Cluster this number counts only the
-- connections of one node. publish returns nil if PUBLISH is not allowed. Then waiters
-- poll.
local function publish(id, message)
  local got = redis.pcall('PUBLISH', channel .. id, message)
  return type(got) == 'number' and got or nil
end

-- listening returns the number of subscribers of a process's own channel. The result of
-- PUBLISH is not enough, because it also counts subscribers of patterns. listening
-- returns false if PUBSUB is not allowed.
local function listening(id)
  local got = redis.pcall('PUBSUB', 'NUMSUB', channel .. id)
  return not got.err and tonumber(got[2])
end

-- finish returns the answer of the script.
local function finish(answer)
  return answer
end

