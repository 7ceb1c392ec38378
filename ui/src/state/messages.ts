import { create } from 'zustand'

export type Tone = 'info' | 'warning' | 'error'

/** A message in the bar at the foot of the page. */
export interface Message {
  /** There is one message of each kind, with the latest text. */
  kind: string
  tone: Tone
  text: string
  /** How often in a row this text was shown. */
  times: number
  /** Milliseconds since 1970. */
  at: number
}

interface Messages {
  /** Oldest first. */
  all: Message[]
  dismiss: (kind?: string) => void
}

const MOST = 30

export const useMessages = create<Messages>()((set) => ({
  all: [],
  dismiss: (kind) =>
    set(({ all }) => ({ all: kind === undefined ? [] : all.filter((message) => message.kind !== kind) })),
}))

/** Show a message; it replaces an earlier one of the same `kind`. */
export function tell(text: string, tone: Tone = 'info', kind = text): void {
  useMessages.setState(({ all }) => {
    const before = all.find((message) => message.kind === kind)
    const times = before?.text === text ? before.times + 1 : 1
    const others = all.filter((message) => message !== before)
    return { all: [...others, { kind, tone, text, times, at: Date.now() }].slice(-MOST) }
  })
}
