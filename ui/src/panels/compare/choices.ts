import type { DumpRecord, Session } from '~/api/types'

/** A run that another one can be compared with. */
export interface Choice {
  /** As the server is asked for it: id of a session, or name among the dumps. */
  value: string
  title: string
  /** What tells runs of one title apart. */
  detail: string
  /** The session in which it is open. */
  session: Session | null
  modified: number | null
  /** Why it cannot be chosen. */
  problem: string
}

/** What to ask the server for: a dump keeps its name when its session is closed, a training has its session only. */
export function nameOf(session: Session): string {
  return session.capabilities.live || !session.dump ? session.id : dumpName(session.dump)
}

/** The name of a dump as no id of a session is written. */
function dumpName(name: string): string {
  return /^\d+$/.test(name) ? `./${name}` : name
}

/** All runs but the one that is shown, the open ones first, the newest first of each; filtered by words. */
export function choices(
  sessions: readonly Session[],
  dumps: readonly DumpRecord[],
  run: string,
  words: string,
): Choice[] {
  const open = sessions
    .filter((one) => one.id !== run && one.state !== 'failed')
    .map((one): Choice => {
      const { framework, framework_version } = one
      return {
        value: nameOf(one),
        title: one.name,
        detail: `${framework} ${framework_version}`.trim(),
        session: one,
        modified: one.created,
        problem: '',
      }
    })
  const closed = dumps
    .filter((one) => typeof one.session !== 'string')
    .map((one): Choice => ({
      value: dumpName(one.name),
      title: one.title,
      detail: [one.title === one.name ? '' : one.name, `${one.framework} ${one.framework_version}`.trim()]
        .filter(Boolean)
        .join(' · '),
      session: null,
      modified: one.modified ?? null,
      problem: one.problem,
    }))
  const newest = (a: Choice, b: Choice) => (b.modified ?? 0) - (a.modified ?? 0)
  const searched = words.toLowerCase().split(/\s+/).filter(Boolean)
  return [...open.sort(newest), ...closed.sort(newest)].filter((one) => {
    const text = `${one.title} ${one.value} ${one.detail}`.toLowerCase()
    return searched.every((word) => text.includes(word))
  })
}
