import type { QueryClient } from '@tanstack/react-query'
import { API } from './client'
import { keys } from './queries'
import type { ServerEvent, Session } from './types'

const FIRST_PAUSE_MS = 300
const LONGEST_PAUSE_MS = 5_000

export interface Follower {
  /** Told when the connection breaks off and when it is there again. */
  onConnected: (connected: boolean) => void
  onEvent?: (event: ServerEvent) => void
}

/** Follow the events of a session (or of the server), and have read anew what they change; returns how to stop. */
export function follow(client: QueryClient, run: string, follower: Follower): () => void {
  const where = run ? `sessions/${encodeURIComponent(run)}/events/stream` : 'events/stream'
  let last: number | null = null
  let pause = FIRST_PAUSE_MS
  let socket: WebSocket | null = null
  let timer: ReturnType<typeof setTimeout> | undefined
  let isOver = false

  const connect = () => {
    const url = new URL(where, API)
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:'
    if (last !== null) url.searchParams.set('after', String(last))
    socket = new WebSocket(url)
    socket.onopen = () => {
      pause = FIRST_PAUSE_MS
      follower.onConnected(true)
      // Whatever happened before the connection was there.
      void client.invalidateQueries({ queryKey: run ? keys.session(run) : keys.sessions })
    }
    socket.onmessage = (message) => {
      const event = JSON.parse(String(message.data)) as ServerEvent
      const isGap = last !== null && event.number !== last + 1
      last = event.number
      if (run) apply(client, run, event, isGap)
      else void client.invalidateQueries({ queryKey: keys.sessions })
      follower.onEvent?.(event)
    }
    socket.onclose = () => {
      if (isOver) return
      follower.onConnected(false)
      // A server that was started anew counts from 1 again.
      last = null
      timer = setTimeout(connect, pause)
      pause = Math.min(2 * pause, LONGEST_PAUSE_MS)
    }
  }
  connect()
  return () => {
    isOver = true
    clearTimeout(timer)
    socket?.close()
  }
}

function apply(client: QueryClient, run: string, event: ServerEvent, isGap: boolean): void {
  const anew = (key: readonly unknown[]) => void client.invalidateQueries({ queryKey: key })
  if (isGap) {
    anew(keys.session(run))
    return
  }
  if (event.kind === 'state') {
    const before = client.getQueryData<Session>(keys.record(run))
    const now = event.data as unknown as Session
    client.setQueryData(keys.record(run), now)
    if (before && (before.step !== now.step || before.state !== now.state || before.node !== now.node)) {
      anew(keys.step(run))
      anew(keys.hits(run))
    }
    if (before?.watchpoints !== now.watchpoints) anew(keys.watchpoints(run))
  } else if (event.kind === 'graph') {
    anew(keys.session(run))
  } else if (event.kind === 'watchpoints') {
    anew(keys.record(run))
    anew(keys.watchpoints(run))
    anew(keys.hits(run))
  } else if (event.kind === 'hits') {
    anew(keys.hits(run))
    anew(keys.watchpoints(run))
    anew(keys.step(run))
  } else if (event.kind === 'tensor') {
    anew(keys.step(run))
  } else if (event.kind === 'rank' || event.kind === 'closed') {
    anew(keys.record(run))
  }
}
