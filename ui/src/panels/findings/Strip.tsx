import { IconArrowRight } from '~/parts/icons'
import { useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import { ActionButton } from '~/parts/ActionButton'
import type { Action } from '~/state/actions'
import { useView } from '~/state/store'
import { useActions } from '~/state/useActions'
import { Certainty } from './Certainty'
import classes from './findings.module.css'
import { useDiagnosis } from './queries'
import { findingsTexts } from './texts'
import { useFindingWords } from './words'

/** One line above every other tab: the first certain finding, and how many more there are. */
export function FindingsStrip() {
  const { t } = useTranslation(findingsTexts)
  const { data: session } = useSession()
  useShowFindings()
  return session && session.findings > 0 ? <Line label={t('title')} /> : null
}

function Line({ label }: { label: string }) {
  const { t } = useTranslation(findingsTexts)
  const tab = useView((view) => view.tab)
  const wordsOf = useFindingWords()
  const { data } = useDiagnosis()
  const findings = data?.findings ?? []
  const first = findings.find(({ certainty }) => certainty === 'certain')
  if (!first || tab === 'findings') return null
  const { title } = wordsOf(first)
  const line = first.where?.['line']
  return (
    <section className={classes['strip']} aria-label={label} data-testid="findings-strip">
      <Certainty certainty={first.certainty} />
      <span className={classes['sentence']} title={title} aria-live="polite">
        {title}
      </span>
      {line && <span className="mono">{line}</span>}
      {findings.length > 1 && (
        <span className={classes['quiet']}>{t('more', { count: findings.length - 1 })}</span>
      )}
      <ActionButton id="findings.show" icon={<IconArrowRight size={16} />} />
    </section>
  )
}

function useShowFindings(): void {
  const { t } = useTranslation(findingsTexts)
  const set = useView((view) => view.set)
  const actions = useMemo(
    (): Action[] => [
      {
        id: 'findings.show',
        label: t('show'),
        keys: 'alt+Y',
        group: t('group'),
        run: () => set({ tab: 'findings' }),
      },
    ],
    [t, set],
  )
  useActions(actions)
}
