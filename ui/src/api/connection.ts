import { create } from 'zustand'

/** How the page stands with its server. */
interface Connection {
  isConnected: boolean
  /** When the connection broke off, in milliseconds; null while it is there. */
  lostAt: number | null
  /** The server wants its token first. */
  needsLogin: boolean
  /** The run that is shown does not exist any more, and why as far as that was told. */
  gone: { run: string; reason: string } | null
  /** Counts up whenever a person asks to connect at once. */
  attempt: number
  connected: () => void
  lost: () => void
  tryNow: () => void
}

export const useConnection = create<Connection>()((set) => ({
  isConnected: true,
  lostAt: null,
  needsLogin: false,
  gone: null,
  attempt: 0,
  connected: () => set({ isConnected: true, lostAt: null }),
  lost: () => set((was) => ({ isConnected: false, lostAt: was.lostAt ?? Date.now() })),
  tryNow: () => set((was) => ({ attempt: was.attempt + 1 })),
}))
