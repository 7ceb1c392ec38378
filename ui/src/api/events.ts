import { hashKey, type QueryClient } from '@tanstack/react-query'
import { effectOf, effectOfRecord, newer } from './changes'
import { ApiError, get } from './client'
import { useConnection } from './connection'
import { keys, path } from './keys'
import { link, type Link } from './link'
import { Refresher } from './refresh'
import type { Message, Progress, ServerEvent, ServerRecord, Session } from './types'

/** Follow the server's events, and keep the list of sessions up to date. */
export function followServer(client: QueryClient, onSession: (id: string) => void): Link {
  const { connected, lost } = useConnection.getState()
  return link({
    path: 'events/stream',
    begin: async (isAgain) => {
      const server = await get<ServerRecord>('server')
      client.setQueryData(keys.server, server)
      if (isAgain) void client.invalidateQueries({ queryKey: keys.dumps })
      void client.invalidateQueries({ queryKey: keys.sessions })
      return server.last_event
    },
    onEvent: (event) => {
      const before = client.getQueryData<Session[]>(keys.sessions)
      if (before) {
        const after = listedAfter(event, before)
        client.setQueryData<Session[]>(keys.sessions, after)
        // A list that is being read may predate this event.
        if (after.length !== before.length && client.isFetching({ queryKey: keys.sessions }))
          void client.invalidateQueries({ queryKey: keys.sessions })
      }
      if (event.kind === 'closed') void client.invalidateQueries({ queryKey: keys.dumps })
      if (event.kind === 'state') onSession((event.data as unknown as Session).id)
    },
    onGap: () => void client.invalidateQueries({ queryKey: keys.sessions }),
    onUp: connected,
    onDown: (error) => {
      if (!isUnauthorized(error)) lost()
    },
    isFinal: noteUnauthorized,
  })
}

/** Return the list of sessions after an event of the server. */
export function listedAfter(event: ServerEvent, sessions: Session[]): Session[] {
  if (event.kind === 'closed') return sessions.filter((session) => session.id !== event.data?.['session'])
  if (event.kind !== 'state') return sessions
  const received = event.data as unknown as Session
  return sessions.some((session) => session.id === received.id)
    ? sessions.map((session) => (session.id === received.id ? newer(session, received) : session))
    : [...sessions, received]
}

export interface SessionFollower {
  onMessage: (message: Message) => void
}

/** Follow the events of a session, and refetch what they change. */
export function followSession(client: QueryClient, run: string, follower: SessionFollower): Link {
  const refresher = new Refresher(client)
  const unfollowRecord = followRecord(client, run, refresher)
  let reason = ''
  const followed = link({
    path: path(run, '/events/stream'),
    begin: async (isAgain) => {
      const session = await get<Session>(path(run))
      useConnection.setState({ gone: null })
      // Not merged with the cached record: after a restart of the server, its events count from 1 again.
      client.setQueryData(keys.record(run), session)
      if (isAgain) refresher.mark([keys.session(run)], 'now')
      return session.last_event
    },
    onEvent: (event) => {
      const effect = effectOf(run, event, client.getQueryData<Session>(keys.record(run)))
      if (effect.session) client.setQueryData(keys.record(run), effect.session)
      if (event.kind === 'progress')
        client.setQueryData<Progress>(keys.progress(run), event.data as Progress | undefined)
      if (event.kind === 'state') client.setQueryData(keys.progress(run), null)
      if (event.kind === 'message') follower.onMessage(event.data as unknown as Message)
      if (event.kind === 'closed') reason = closingReason(event)
      refresher.mark(effect.stale, effect.pace)
    },
    onGap: () => refresher.mark([keys.session(run)], 'now'),
    isFinal: (error) => {
      if (error instanceof ApiError && error.status === 404) {
        useConnection.setState({ gone: { run, reason } })
        return true
      }
      return noteUnauthorized(error)
    },
  })
  return {
    ...followed,
    stop: () => {
      followed.stop()
      unfollowRecord()
      refresher.stop()
    },
  }
}

/**
 * Refetch what another record of the session makes stale. Events, responses to commands and requests write the record;
 * whichever is first moves what is shown.
 */
export function followRecord(client: QueryClient, run: string, refresher: Refresher): () => void {
  const cache = client.getQueryCache()
  const hash = hashKey(keys.record(run))
  let before: Session | undefined
  const follow = () => {
    const now = client.getQueryData<Session>(keys.record(run))
    if (now === undefined || now === before) return
    const { stale, pace } = effectOfRecord(run, before, now)
    before = now
    refresher.mark(stale, pace)
  }
  follow()
  return cache.subscribe(({ type, query }) => {
    if (type === 'updated' && query.queryHash === hash) follow()
  })
}

function closingReason(event: ServerEvent): string {
  const reason = event.data?.['reason']
  return typeof reason === 'string' ? reason : ''
}

function isUnauthorized(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401
}

/** Ask for a login if this is why a request failed; retrying is useless until then. */
function noteUnauthorized(error: unknown): boolean {
  if (!isUnauthorized(error)) return false
  useConnection.setState({ needsLogin: true })
  return true
}
