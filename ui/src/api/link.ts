import { API } from './client'
import type { ServerEvent } from './types'

const FIRST_PAUSE_MS = 300
const LONGEST_PAUSE_MS = 5_000

export interface LinkOptions {
  /** Relative to the API. */
  path: string
  /** Read the state that the events continue; return the number of its last event. Throw to retry later. */
  begin: (isAgain: boolean) => Promise<number>
  onEvent: (event: ServerEvent) => void
  /** The log no longer has all events since `begin`. */
  onGap: () => void
  /** The connection was established, or lost. */
  onUp?: () => void
  onDown?: (error: unknown) => void
  /** Whether retrying is useless after this error. */
  isFinal?: (error: unknown) => boolean
}

export interface Link {
  stop: () => void
  /** Retry immediately if the link waits for its next attempt or has given up. */
  hurry: () => void
}

/** Follow an event log over a WebSocket: read the state, then its events; start over when the connection is lost. */
export function link(options: LinkOptions): Link {
  let pause = FIRST_PAUSE_MS
  let socket: WebSocket | null = null
  let timer: ReturnType<typeof setTimeout> | undefined
  let isOver = false
  let isBusy = false
  let wasUp = false

  const failed = (error: unknown) => {
    isBusy = false
    if (isOver) return
    options.onDown?.(error)
    if (options.isFinal?.(error)) return
    timer = setTimeout(() => void connect(), pause)
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS)
  }

  const connect = async () => {
    isBusy = true
    let last: number
    try {
      last = await options.begin(wasUp)
    } catch (error) {
      failed(error)
      return
    }
    // It may have been stopped during `begin`.
    if (isOver) return
    const url = new URL(options.path, API)
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:'
    url.searchParams.set('after', String(last))
    const opened = new WebSocket(url)
    socket = opened
    opened.onopen = () => {
      pause = FIRST_PAUSE_MS
      wasUp = true
      options.onUp?.()
    }
    opened.onmessage = (message) => {
      const event = JSON.parse(String(message.data)) as ServerEvent
      if (event.number !== last + 1) options.onGap()
      last = event.number
      options.onEvent(event)
    }
    opened.onclose = () => failed(null)
  }

  void connect()
  return {
    stop: () => {
      isOver = true
      clearTimeout(timer)
      if (socket) {
        socket.onclose = null
        socket.onmessage = null
        socket.close()
      }
    },
    hurry: () => {
      if (isBusy || isOver) return
      clearTimeout(timer)
      void connect()
    },
  }
}
