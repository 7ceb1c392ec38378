import { useEffect, useRef } from 'react'
import { useQueryClient } from '@tanstack/react-query'
import { useConnection } from './connection'
import { followServer, followSession, type SessionFollower } from './events'
import type { Link } from './link'

/** Keep the page in sync with the server while it is open. */
export function useFollowing(run: string, onMessage: SessionFollower['onMessage']): void {
  const client = useQueryClient()
  const session = useRef<{ run: string; link: Link } | null>(null)
  const server = useRef<Link | null>(null)

  useEffect(() => {
    const followed = followServer(client, (id) => {
      // A run that was gone is back: its training has reconnected to the restarted server.
      if (session.current?.run === id) session.current.link.hurry()
    })
    server.current = followed
    return () => followed.stop()
  }, [client])

  useEffect(() => {
    if (run === '') return
    const followed = followSession(client, run, { onMessage })
    session.current = { run, link: followed }
    return () => {
      followed.stop()
      session.current = null
    }
  }, [client, run, onMessage])

  useEffect(() => {
    const hurry = () => {
      server.current?.hurry()
      session.current?.link.hurry()
    }
    const stop = useConnection.subscribe((now, before) => {
      if (now.attempt !== before.attempt || (now.isConnected && !before.isConnected)) hurry()
    })
    window.addEventListener('online', hurry)
    document.addEventListener('visibilitychange', hurry)
    return () => {
      stop()
      window.removeEventListener('online', hurry)
      document.removeEventListener('visibilitychange', hurry)
    }
  }, [])
}
