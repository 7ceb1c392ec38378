import type { DumpRecord, Session } from '~/api/types'

/** A run to compare with. */
export interface Choice {
  /** Name of the run in requests: id of a session, or name of a dump. */
  value: string
  title: string
  /** Distinguishes runs of the same title. */
  detail: string
  /** The session in which the run is open. */
  session: Session | null
  modified: number | null
  /** Why the run cannot be chosen. */
  problem: string
}

/** Return the name of a run in requests: a dump's name, which outlives its session, or a training's session id. */
export function nameOf(session: Session): string {
  return session.capabilities.live || !session.dump ? session.id : dumpName(session.dump)
}

/** Return the name of a dump, written so that it cannot be mistaken for a session id. */
function dumpName(name: string): string {
  return /^\d+$/.test(name) ? `./${name}` : name
}

/** Return all runs except the one shown, open runs first, then by newest; filtered by words. */
export function choices(
  sessions: readonly Session[],
  dumps: readonly DumpRecord[],
  run: string,
  words: string,
): Choice[] {
  const open = sessions
    .filter((session) => session.id !== run && session.state !== 'failed')
    .map((session): Choice => {
      const { framework, framework_version } = session
      return {
        value: nameOf(session),
        title: session.name,
        detail: `${framework} ${framework_version}`.trim(),
        session: session,
        modified: session.created,
        problem: '',
      }
    })
  const closed = dumps
    .filter((dump) => typeof dump.session !== 'string')
    .map((dump): Choice => ({
      value: dumpName(dump.name),
      title: dump.title,
      detail: [
        dump.title === dump.name ? '' : dump.name,
        `${dump.framework} ${dump.framework_version}`.trim(),
      ]
        .filter(Boolean)
        .join(' · '),
      session: null,
      modified: dump.modified ?? null,
      problem: dump.problem,
    }))
  const newest = (a: Choice, b: Choice) => (b.modified ?? 0) - (a.modified ?? 0)
  const searched = words.toLowerCase().split(/\s+/).filter(Boolean)
  return [...open.sort(newest), ...closed.sort(newest)].filter((choice) => {
    const text = `${choice.title} ${choice.value} ${choice.detail}`.toLowerCase()
    return searched.every((word) => text.includes(word))
  })
}
