import type { QueryKey } from '@tanstack/react-query'
import { keys } from './keys'
import type { Pace } from './refresh'
import type { RankRecord, ServerEvent, Session } from './types'

/** The queries to read again, and how soon. */
export interface Stale {
  stale: readonly QueryKey[]
  pace: Pace
}

/** What an event changes itself. What follows from another record of the session is `effectOfRecord`'s. */
export interface Effect extends Stale {
  /** The session after the event, if the event changes it. */
  session?: Session
}

const NOTHING: Effect = { stale: [], pace: 'now' }

/** Return the newer of two records of a session; after a restart under the same id, the received one. */
export function newer(cached: Session | undefined, received: Session): Session {
  return cached?.created === received.created && cached.last_event > received.last_event ? cached : received
}

/** Await a session that is being read; return the cached record if an event has made it newer meanwhile. */
export async function read(cached: () => Session | undefined, answer: Promise<Session>): Promise<Session> {
  const received = await answer
  return newer(cached(), received)
}

/** Determine which cached queries an event of a session changes. */
export function effectOf(run: string, event: ServerEvent, before: Session | undefined): Effect {
  switch (event.kind) {
    case 'state':
      return { ...NOTHING, session: newer(before, event.data as unknown as Session) }
    case 'graph':
      return { stale: [keys.session(run)], pace: whileRunning(before) }
    case 'watchpoints':
      return { stale: [keys.record(run), keys.watchpoints(run), keys.hits(run)], pace: 'now' }
    case 'hits':
      return {
        ...(before?.step === event.data?.['step'] && before && typeof event.data?.['total'] === 'number'
          ? { session: { ...before, hits: event.data['total'] } }
          : {}),
        stale: [keys.hits(run), keys.watchpoints(run), keys.step(run)],
        pace: whileRunning(before),
      }
    case 'findings':
      return { stale: [keys.findings(run)], pace: whileRunning(before) }
    case 'tensor':
      return { stale: [keys.step(run)], pace: 'arrival' }
    case 'rank':
      return before && event.number > before.last_event
        ? { ...NOTHING, session: withRank(before, event.data as unknown as RankRecord) }
        : NOTHING
    case 'progress':
    case 'comparison':
    case 'message':
    case 'closed':
      return NOTHING
  }
}

/** Determine which cached queries another record of the session changes, wherever it came from. */
export function effectOfRecord(run: string, before: Session | undefined, now: Session): Stale {
  // What was read so far may be older than the first record.
  if (!before)
    return { stale: [keys.step(run), keys.hits(run), keys.watchpoints(run), keys.findings(run)], pace: 'now' }
  const stale: QueryKey[] = []
  const isElsewhere = before.step !== now.step || before.state !== now.state || before.node !== now.node
  if (isElsewhere) stale.push(keys.step(run), keys.hits(run))
  const hasOtherHits = before.hits !== now.hits || (isElsewhere && now.hits > 0)
  if (before.watchpoints !== now.watchpoints || hasOtherHits || before.outdated !== now.outdated) {
    stale.push(keys.watchpoints(run))
    if (!isElsewhere) stale.push(keys.hits(run))
  }
  // A training that has ended is judged once more.
  if (before.findings !== now.findings || before.state !== now.state) stale.push(keys.findings(run))
  if (before.state === 'connecting' && now.state !== 'connecting') stale.push(keys.graphs(run))
  return { stale, pace: now.state === 'running' ? whileRunning(before) : 'now' }
}

function withRank(session: Session, rank: RankRecord): Session {
  const ranks = session.ranks.filter((other) => other.rank !== rank.rank)
  return { ...session, ranks: [...ranks, rank].sort((a, b) => a.rank - b.rank) }
}

function whileRunning(before: Session | undefined): Pace {
  return before?.state === 'running' ? 'running' : 'now'
}
