-- The state of a topic, which each script reads first.
--
-- KEYS: 1 state, 2 stream, 3 order, 4 values, 5 and 6 identifiers, 7 channel
-- ARGV: 1 a name for a new epoch, 2 the process that was looked at, 3 whether it kept all messages
--
-- An offset is a time in units of 1/4096 ms since 2020, or the offset before it and 1. So offsets of messages that a server has
-- lost do not come again. They stay below 2^53, up to which numbers of Lua and JavaScript are exact, until 2089.
local BASE = 1577836800000
local DAY = 86400000

local function id_of(offset)
  return string.format('%.0f-%d', math.floor(offset / 4096) + BASE, offset % 4096)
end

local function offset_of(id)
  local ms, sequence = string.match(id, '^(%d+)-(%d+)$')
  return (tonumber(ms) - BASE) * 4096 + tonumber(sequence)
end

local function text(offset) return string.format('%.0f', offset) end

local server = redis.call('INFO', 'server')
local process = string.match(server, 'run_id:(%x+)')
  .. string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local state = redis.call('HMGET', KEYS[1], 'epoch', 'last', 'process', 'kind', 'until')
local epoch, last, kind = state[1], tonumber(state[2] or '0'), state[4]

local function renew()
  epoch = ARGV[1]
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'last', text(last), 'process', process)
end

if not epoch then
  -- The topic is new, or its state was evicted.
  local newest = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
  if newest then last, kind = offset_of(newest[1]), 'history' end
  newest = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
  if newest and tonumber(newest) > last then last, kind = tonumber(newest), 'latest' end
  renew()
  redis.call('PEXPIRE', KEYS[1], DAY)
  if kind then redis.call('HSET', KEYS[1], 'kind', kind) end
elseif state[3] ~= process then
  -- A server was restarted, or another one has its place.
  if ARGV[2] ~= process then return { 'look', process } end
  if ARGV[3] == 'kept' then redis.call('HSET', KEYS[1], 'process', process) else renew() end
elseif state[5] and now < tonumber(state[5]) then
  -- Its messages were evicted.
  local is_there = kind == 'latest' and redis.call('EXISTS', KEYS[3], KEYS[4]) == 2
    or kind ~= 'latest' and redis.call('EXISTS', KEYS[2]) == 1
  if not is_there then renew() end
end
