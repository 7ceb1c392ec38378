import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import { useConditions } from '~/parts/Advice'
import { adviceText } from '~/parts/adviceText'
import type { Finding } from './findings'
import { remedyOf, whereUncertain } from './remedies'
import { originTexts } from './texts'

/** Advice on a finding in a sentence or two; empty while it loads. */
export function useNextStep(finding: Finding): string {
  const { t } = useTranslation(originTexts)
  const { data: conditions } = useConditions()
  const { data: session } = useSession()
  const remedy = remedyOf(finding)
  if (finding.kind === 'hit') {
    const about = conditions?.find((record) => record.id === finding.hit.condition)
    return about ? [about.meaning, about.advice[0] ?? ''].map(adviceText).join(' ') : ''
  }
  return t(`remedies.${remedy === 'uncertain' ? whereUncertain(session) : remedy}`)
}
