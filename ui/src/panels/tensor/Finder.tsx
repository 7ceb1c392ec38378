import { useQueryClient } from '@tanstack/react-query'
import { IconArrowBarToUp, IconChevronDown, IconChevronUp, IconTarget } from '~/parts/icons'
import { useEffect, useMemo, useRef, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { ActionButton } from '~/parts/ActionButton'
import type { Action } from '~/state/actions'
import { tell } from '~/state/messages'
import { useView } from '~/state/store'
import { useActions } from '~/state/useActions'
import { elementQuery, type ValueRequest, type Find } from './queries'
import styles from './tensor.module.css'
import { tensorTexts } from './texts'

const FINDS: { find: Find; keys: string }[] = [
  { find: 'first', keys: 'shift+A' },
  { find: 'previous', keys: 'shift+B' },
  { find: 'next', keys: 'shift+N' },
  { find: 'largest', keys: 'shift+M' },
]
const ICONS = {
  first: <IconTarget size={15} />,
  previous: <IconChevronUp size={15} />,
  next: <IconChevronDown size={15} />,
  largest: <IconArrowBarToUp size={15} />,
}

/** Buttons that go to the non-finite elements one by one, and to the largest element. */
export function Finder(props: {
  request: ValueRequest
  /** Index of the marked element. */
  at: readonly number[] | null
  /** Number of non-finite elements; null if it is not known. */
  nonFiniteCount: number | null
  onFound: (index: readonly number[]) => void
}) {
  const { request, at, nonFiniteCount, onFound } = props
  const { t } = useTranslation(tensorTexts)
  const run = useView((view) => view.run)
  const client = useQueryClient()
  const [nothing, setNothing] = useState('')
  const here = at ? textOf(at) : ''
  const position = useRef(here)
  const turn = useRef(Promise.resolve())
  useEffect(() => {
    position.current = here
  }, [here])
  const key = JSON.stringify(request)

  const actions = useMemo<Action[]>(
    () =>
      FINDS.map(({ find, keys }): Action => ({
        id: `tensor.find.${find}`,
        label: t(`find.${find}`),
        keys,
        group: t('group'),
        disabled: nonFiniteCount === 0 && find !== 'largest' ? t('find.none') : undefined,
        // Requests run one after the other, each from the previous result: keys may be faster than responses.
        run: () => {
          turn.current = turn.current.then(async () => {
            const request = JSON.parse(key) as ValueRequest
            const isRelative = find === 'next' || find === 'previous'
            const kind = find === 'first' ? 'next' : find
            try {
              const { index } = await client.query(
                elementQuery(run, request, kind, isRelative ? position.current : ''),
              )
              setNothing(index ? '' : key)
              if (!index) return
              position.current = textOf(index)
              onFound(index)
            } catch (error) {
              const message = error instanceof Error ? error.message : String(error)
              tell(message, 'error', 'tensor.find')
            }
          })
        },
      })),
    [client, key, nonFiniteCount, onFound, run, t],
  )
  useActions(actions)

  return (
    <div className={styles.finder} role="group" aria-label={t('find.group')} data-testid="finder">
      <span data-alarm={nonFiniteCount ? true : undefined}>
        {t(nonFiniteCount === 0 ? 'find.finite' : 'find.odd')}
      </span>
      {FINDS.map(({ find }) => (
        <ActionButton key={find} id={`tensor.find.${find}`} icon={ICONS[find]} />
      ))}
      <span role="status" className={styles.quiet}>
        {nothing === key ? t('find.none') : ''}
      </span>
    </div>
  )
}

function textOf(index: readonly number[]): string {
  return `[${index.join(', ')}]`
}
