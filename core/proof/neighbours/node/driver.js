'use strict';
// Obeys the commands on standard input. driver.go of package neighbours describes the lines.

const readline = require('readline');
const Redis = require('ioredis');
const Redlock = require('redlock');
const {default: Redlock5} = require('redlock5');

const servers = process.argv.slice(2).map((addr) => {
	const [host, port] = addr.split(':');
	// By default a request to a server that is down fails after 20 attempts to connect, with pauses
	// of up to 2 s.
	return new Redis({host, port: Number(port), maxRetriesPerRequest: 1, retryStrategy: () => 200}).on('error', () => {});
});
const once = {retryCount: 0};
const redlock = new Redlock(servers, once);
const redlock5 = new Redlock5(servers, once);
for (const r of [redlock, redlock5]) for (const event of ['clientError', 'error']) r.on(event, () => {});

// Each function takes a free lock, or throws. It returns an object with unlock, and with extend
// or gone.
const clients = {
	'redlock': (name, ttl) => redlock.lock(name, ttl),
	'redlock-5': async (name, ttl) => {
		let lock = await redlock5.acquire([name], ttl);
		return {
			extend: async (ttl) => { lock = await lock.extend(ttl); },
			unlock: () => lock.release(),
		};
	},
	'redlock-5-using': (name, ttl) => new Promise((resolve, reject) => {
		const end = redlock5.using([name], ttl, {automaticExtensionThreshold: ttl / 2}, (signal) => new Promise((leave) => {
			resolve({
				gone: () => signal.aborted,
				unlock: () => { leave(); return end; },
			});
		}));
		end.catch(reject);
	}),
};

async function run(locks, verb, client, name, ttl) {
	const key = client + ' ' + name;
	switch (verb) {
	case 'trylock':
		try {
			locks.set(key, await clients[client](name, Number(ttl)));
			return 'yes';
		} catch (e) {
			if (/^Exceeded|unable to achieve a quorum/.test(e.message)) return 'no';
			throw e;
		}
	case 'extend':
		await locks.get(key).extend(Number(ttl));
		return 'done';
	case 'unlock':
		await locks.get(key).unlock();
		return 'done';
	case 'gone':
		return locks.get(key).gone() ? 'yes' : 'no';
	}
	throw new Error('no verb ' + verb);
}

const threads = new Map(); // by WHO: the held locks, and a promise for the end of the last command
console.log('0 ready');
readline.createInterface({input: process.stdin}).on('line', (line) => {
	const [number, who, ...words] = line.split(' ');
	if (!threads.has(who)) threads.set(who, {locks: new Map(), last: Promise.resolve()});
	const thread = threads.get(who);
	thread.last = thread.last.then(() => run(thread.locks, ...words)).then(
		(text) => console.log(number + ' ' + text),
		(e) => console.log(number + ' error ' + e.name + ' ' + String(e.message).replace(/\s+/g, ' ')));
});
