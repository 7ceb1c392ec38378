import { Skeleton } from '@mantine/core'
import { IconCircleCheck, IconHelpCircle } from '~/parts/icons'
import { useRef, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import type { Diagnosis } from '~/api/types'
import { CopyButton } from '~/parts/CopyButton'
import { Failure, Notice } from '~/parts/Notice'
import type { Choice } from './facts'
import { FactCurves } from './FactCurves'
import { FindingCard } from './FindingCard'
import classes from './findings.module.css'
import { useDiagnosis } from './queries'
import { findingsTexts } from './texts'

const COMMAND = 'tensight diagnose train.py'

/** Why the training does not learn: what rules find in its facts, the facts as curves, and what was not judged. */
export default function Findings() {
  const { data: diagnosis, error, refetch } = useDiagnosis()
  return (
    <div className="fill" data-testid="panel-findings">
      {error && !diagnosis ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : !diagnosis ? (
        <div className={classes['pending']} aria-busy>
          {[0, 1].map((index) => (
            <Skeleton key={index} height={130} mb={10} />
          ))}
        </div>
      ) : diagnosis.steps === 0 ? (
        <NoFacts />
      ) : (
        <Found diagnosis={diagnosis} />
      )}
    </div>
  )
}

function Found({ diagnosis }: { diagnosis: Diagnosis }) {
  const { t } = useTranslation(findingsTexts)
  const [choice, setChoice] = useState<Choice>({ column: 'losses.value', names: null })
  const chart = useRef<HTMLDivElement>(null)
  const { findings, steps, undecided } = diagnosis
  const showFacts = (facts: Choice) => {
    setChoice(facts)
    chart.current?.scrollIntoView({ block: 'nearest' })
  }
  return (
    <div className={`scroll ${classes['list'] ?? ''}`} tabIndex={0} role="group" aria-label={t('title')}>
      {findings.length === 0 && (
        <p className={classes['none']} data-testid="findings-none">
          <IconCircleCheck size={18} aria-hidden />
          <span>
            <b>{t('none')}</b> {t('noneText', { step: steps })}
          </span>
        </p>
      )}
      {findings.map((finding) => (
        <FindingCard key={`${finding.rule} ${finding.title}`} finding={finding} showFacts={showFacts} />
      ))}
      <div ref={chart}>
        <FactCurves choice={choice} choose={setChoice} />
      </div>
      <footer className={classes['foot']} data-testid="findings-foot">
        {t('upTo', { step: steps })}
        {undecided.length > 0 && (
          <details data-testid="findings-undecided">
            <summary>{t('undecided', { count: undecided.length })}</summary>
            <ul>
              {undecided.map(({ rule, why }) => (
                <li key={rule}>
                  <code>{rule}</code>: {why}
                </li>
              ))}
            </ul>
          </details>
        )}
      </footer>
    </div>
  )
}

/** Why there is nothing to judge, and what to do. */
function NoFacts() {
  const { t } = useTranslation(findingsTexts)
  const { data: session } = useSession()
  return (
    <Notice icon={<IconHelpCircle size={32} aria-hidden />} title={t('noFacts')} testId="findings-no-facts">
      <p className={classes['why']}>{t(session?.capabilities.live ? 'noFactsLive' : 'noFactsDump')}</p>
      <p className={classes['why']}>
        {t('noFactsCommand')} <code>{COMMAND}</code> <CopyButton text={COMMAND} label={COMMAND} />
      </p>
    </Notice>
  )
}
