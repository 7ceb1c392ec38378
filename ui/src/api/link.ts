import { API } from './client'
import type { ServerEvent } from './types'

const FIRST_PAUSE_MS = 300
const LONGEST_PAUSE_MS = 5_000

export interface LinkOptions {
  /** Below the API. */
  path: string
  /** Read what the events go on from; returns the number of the last event in it. Throws to try again later. */
  begin: (isAgain: boolean) => Promise<number>
  onEvent: (event: ServerEvent) => void
  /** The log does not have all that came since `begin`. */
  onGap: () => void
  /** The connection is there, or it broke off. */
  onUp?: () => void
  onDown?: (error: unknown) => void
  /** Whether trying again makes sense after this. */
  isFinal?: (error: unknown) => boolean
}

export interface Link {
  stop: () => void
  /** Try at once if it waits to try again, or has given up. */
  hurry: () => void
}

/** Keep a WebSocket to a log of events: read first, then follow from there, and anew whenever it breaks off. */
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
    // It may have been stopped while that was read.
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
