import { useMemo } from 'react'
import { useHits, useOrigins, useSession } from '~/api/queries'
import { findings, type Finding } from './findings'

/** Hits that are looked at for what the banner names: the first ones in the order of execution. */
const FIRST_HITS = 20

export interface Findings {
  found: Finding[]
  /** Nodes with hits. */
  nodes: number
  isPending: boolean
  error: Error | null
}

/** What there is to tell at the step that is shown; nothing while nothing hit. */
export function useFindings(): Findings {
  const { data: session } = useSession()
  const hasHits = (session?.hits ?? 0) > 0
  const origins = useOrigins()
  const hits = useHits({ limit: FIRST_HITS })
  const found = useMemo(
    () => findings(origins.data ?? [], hasHits ? (hits.data?.nodes ?? []) : []),
    [origins.data, hits.data, hasHits],
  )
  return {
    found,
    nodes: hasHits ? (hits.data?.total ?? 0) : 0,
    isPending: hasHits && (origins.isLoading || hits.isLoading),
    error: origins.error,
  }
}
